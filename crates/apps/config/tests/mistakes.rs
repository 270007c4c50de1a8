//! One test for each kind of error: a network file and its exact report. The JSON Schema of network files must refuse
//! the file too, except in tests that call [`refused_by_the_loader`].

mod common;

use expect_test::{Expect, expect};

/// Asserts that `text` with the settings `set` is refused with exactly this report, and that the schema refuses it too.
#[track_caller]
fn refused(text: &str, set: &[&str], expected: Expect) {
    let is_seen = common::wrong_by_schema(text).is_none_or(|errors| !errors.is_empty());
    assert!(is_seen, "the schema has no objection to:\n{text}");
    expected.assert_eq(&report(text, set));
}

/// Asserts the report of an error that the schema cannot find: it involves several values, files or sockets, or the
/// app's own check.
#[track_caller]
fn refused_by_the_loader(text: &str, set: &[&str], expected: Expect) {
    expected.assert_eq(&report_by_the_loader(text, set));
}

/// The report of such an error.
#[track_caller]
fn report_by_the_loader(text: &str, set: &[&str]) -> String {
    let errors = common::wrong_by_schema(text).unwrap_or_default();
    assert!(errors.is_empty(), "the schema sees it: {errors:?}");
    report(text, set)
}

#[track_caller]
fn report(text: &str, set: &[&str]) -> String {
    match common::loaded(text, set) {
        Ok(_) => panic!("it was loaded:\n{text}"),
        Err(diagnostics) => diagnostics.render(false),
    }
}

#[test]
fn an_unknown_app_type_is_answered_with_the_nearest() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "sorce"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: there is no app type `sorce`
             --> net.toml:3:7
              |
            3 | app = "sorce"
              |       ^^^^^^^ did you mean `source`?
              |
              = help: there are `monitor`, `source`, `tee`, `writer`
        "#]],
    );
}

#[test]
fn an_app_without_a_type_is_refused() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: the app `s` has no type
             --> net.toml:2:7
              |
            2 | [apps.s]
              |       ^ `app` is missing here
              |
              = help: add `app = "TYPE"`; `bellows apps` lists all types
        "#]],
    );
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest_and_all_keys() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
apend = true
"#,
        &[],
        expect![[r#"
            error: app type `writer` has no key `apend`
             --> net.toml:7:1
              |
            7 | apend = true
              | ^^^^^ did you mean `append`?
              |
              = help: its keys: `path`, `flush`, `append`
        "#]],
    );
}

#[test]
fn a_key_without_a_near_match_is_answered_with_all_keys() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
colour = "red"
"#,
        &[],
        expect![[r#"
            error: app type `writer` has no key `colour`
             --> net.toml:7:1
              |
            7 | colour = "red"
              | ^^^^^^ unknown key
              |
              = help: its keys: `path`, `flush`, `append`
        "#]],
    );
}

#[test]
fn a_key_that_every_app_has_is_checked_like_its_own() {
    refused(
        r#"links = ["s.output -> t.input", "t.a -> m.input"]
[apps.s]
app = "source"
prefetch = 65
[apps.t]
app = "tee"
prefech = 8
[apps.m]
app = "monitor"
prefetch = "far"
"#,
        &[],
        expect![[r#"
            error: `prefetch` must be an integer 0 to 64
             --> net.toml:4:12
              |
            4 | prefetch = 65
              |            ^^ out of range

            error: app type `tee` has no key `prefech`
             --> net.toml:7:1
              |
            7 | prefech = 8
              | ^^^^^^^ did you mean `prefetch`?
              |
              = help: it has no keys

            error: `prefetch` must be an integer 0 to 64
              --> net.toml:10:12
               |
            10 | prefetch = "far"
               |            ^^^^^ this is text
        "#]],
    );
}

#[test]
fn links_below_a_table_belong_at_the_top() {
    refused(
        r#"[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
links = ["s.output -> w.input"]
"#,
        &[],
        expect![[r#"
            error: app type `writer` has no key `links`
             --> net.toml:6:1
              |
            6 | links = ["s.output -> w.input"]
              | ^^^^^ unknown key
              |
              = help: `links` belongs at the top of the file, before the first [table]
              = help: its keys: `path`, `flush`, `append`
        "#]],
    );
}

#[test]
fn a_wrong_type_is_answered_with_the_right_one() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
append = "yes"
"#,
        &[],
        expect![[r#"
            error: `append` must be `true` or `false`
             --> net.toml:7:10
              |
            7 | append = "yes"
              |          ^^^^^ this is text
        "#]],
    );
}

#[test]
fn a_key_of_another_table_of_the_type_is_placed() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
weight = 3
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: app type `source` has no key `weight`
             --> net.toml:4:1
              |
            4 | weight = 3
              | ^^^^^^ unknown key
              |
              = help: `weight` is a key of `mix[]`
              = help: its keys: `size`, `count`, `rate`, `payload`, `mix`
        "#]],
    );
}

#[test]
fn a_wrong_part_of_a_value_hides_no_other_part() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
mix = [{ size = "60" }, { size = 1 }, 7, { size = 60, wieght = 1 }]
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `mix[0].size` must be an integer 14 to 9,000
             --> net.toml:4:17
              |
            4 | mix = [{ size = "60" }, { size = 1 }, 7, { size = 60, wieght = 1 }]
              |                 ^^^^ this is text

            error: `mix[1].size` must be an integer 14 to 9,000
             --> net.toml:4:34
              |
            4 | mix = [{ size = "60" }, { size = 1 }, 7, { size = 60, wieght = 1 }]
              |                                  ^ out of range

            error: `mix[2]` must be a table with `size`, `weight`
             --> net.toml:4:39
              |
            4 | mix = [{ size = "60" }, { size = 1 }, 7, { size = 60, wieght = 1 }]
              |                                       ^ this is an integer

            error: app type `source` has no key `mix[3].wieght`
             --> net.toml:4:55
              |
            4 | mix = [{ size = "60" }, { size = 1 }, 7, { size = 60, wieght = 1 }]
              |                                                       ^^^^^^ did you mean `weight`?
              |
              = help: its keys: `size`, `weight`
        "#]],
    );
}

#[test]
fn a_value_out_of_range_is_answered_with_the_range() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
size = 10_000
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `size` must be an integer 14 to 9,000
             --> net.toml:4:8
              |
            4 | size = 10_000
              |        ^^^^^^ out of range
        "#]],
    );
}

#[test]
fn an_unknown_word_is_answered_with_the_allowed_ones() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
payload = "sequnce"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `payload` cannot be `sequnce`
             --> net.toml:4:11
              |
            4 | payload = "sequnce"
              |           ^^^^^^^^^ did you mean `sequence`?
              |
              = help: it is one of `zero`, `sequence`
        "#]],
    );
}

#[test]
fn a_quantity_without_its_unit_is_answered_with_how_to_write_it() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
rate = "1.5m"
[apps.w]
app = "writer"
path = "w.pcap"
flush = 10
"#,
        &[],
        expect![[r#"
            error: `rate`: `1.5m` is not a rate
             --> net.toml:4:8
              |
            4 | rate = "1.5m"
              |        ^^^^^^
              |
              = help: write it like `1000`, `250k`, `1.5M`

            error: `flush` must be a duration such as `10s` or `1.5ms`
             --> net.toml:8:9
              |
            8 | flush = 10
              |         ^^ this is an integer
        "#]],
    );
}

#[test]
fn errors_that_only_serde_finds_have_the_same_format() {
    refused(
        r#"links = ["s.output -> m.input", "t.output -> n.input"]
[apps.s]
app = "source"
[apps.t]
app = "source"
[apps.m]
app = "monitor"
columns = 1.5
corner = { at = { x = "one", y = 2 } }
[apps.n]
app = "monitor"
corner = "right"
"#,
        &[],
        expect![[r#"
            error: `columns` must be an integer 0 to 255, or list of text
             --> net.toml:8:11
              |
            8 | columns = 1.5
              |           ^^^

            error: `corner.at.x` must be an integer 0 to 255
             --> net.toml:9:23
              |
            9 | corner = { at = { x = "one", y = 2 } }
              |                       ^^^^^ this is text

            error: `corner`: unknown variant `right`, expected `left` or `at`
              --> net.toml:12:10
               |
            12 | corner = "right"
               |          ^^^^^^^
               |
               = help: `corner` is `left`, or table with `at`
        "#]],
    );
}

#[test]
fn errors_in_inner_tables_are_shown_at_their_place() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
mix = [{ size = 60, wieght = 7 }, { weight = 400 }]
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: app type `source` has no key `mix[0].wieght`
             --> net.toml:4:21
              |
            4 | mix = [{ size = 60, wieght = 7 }, { weight = 400 }]
              |                     ^^^^^^ did you mean `weight`?
              |
              = help: its keys: `size`, `weight`

            error: app type `source` needs the key `mix[1].size`
             --> net.toml:4:35
              |
            4 | mix = [{ size = 60, wieght = 7 }, { weight = 400 }]
              |                                   ^^^^^^^^^^^^^^^^ missing here
              |
              = help: add to the inner table `size = …` (integer 14 to 9,000)

            error: `mix[1].weight` must be an integer 0 to 255
             --> net.toml:4:46
              |
            4 | mix = [{ size = 60, wieght = 7 }, { weight = 400 }]
              |                                              ^^^ out of range
        "#]],
    );
}

#[test]
fn a_missing_key_is_named_with_its_type() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
"#,
        &[],
        expect![[r#"
            error: app type `writer` needs the key `path`
             --> net.toml:4:7
              |
            4 | [apps.w]
              |       ^ missing here
              |
              = help: add `path = …` (text)
        "#]],
    );
}

#[test]
fn a_value_that_the_app_refuses_is_shown_at_its_key() {
    refused_by_the_loader(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w"
"#,
        &[],
        expect![[r#"
            error: `w`: `nets/w` does not say what kind of file it is
             --> net.toml:6:8
              |
            6 | path = "w"
              |        ^^^
              |
              = help: let it end in `.pcap` or `.pcapng`
        "#]],
    );
}

#[test]
fn an_unknown_app_in_a_link_is_answered_with_the_nearest() {
    refused_by_the_loader(
        r#"links = ["s.output -> wr.input"]
[apps.s]
app = "source"
[apps.writer]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: there is no app `wr`
             --> net.toml:1:23
              |
            1 | links = ["s.output -> wr.input"]
              |                       ^^ did you mean `writer`?
              |
              = help: the network has `s`, `writer`
        "#]],
    );
}

#[test]
fn an_unknown_port_is_answered_with_the_nearest() {
    refused_by_the_loader(
        r#"links = ["s.output -> w.inptu"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `w` (writer) has no input `inptu`
             --> net.toml:1:25
              |
            1 | links = ["s.output -> w.inptu"]
              |                         ^^^^^ did you mean `input`?
              |
              = help: its inputs: `input`, `control`
        "#]],
    );
}

#[test]
fn a_port_of_the_other_side_is_recognized() {
    refused_by_the_loader(
        r#"links = ["w.input -> s.output"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `w` (writer) has no output `input`
             --> net.toml:1:13
              |
            1 | links = ["w.input -> s.output"]
              |             ^^^^^ this is an input
              |
              = help: it has no outputs

            error: `s` (source) has no input `output`
             --> net.toml:1:24
              |
            1 | links = ["w.input -> s.output"]
              |                        ^^^^^^ this is an output
              |
              = help: it has no inputs
        "#]],
    );
}

#[test]
fn a_port_linked_twice_is_shown_at_both_places() {
    refused_by_the_loader(
        r#"links = [
  "s.output -> w.input",
  "s.output -> m.input",
]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
[apps.m]
app = "monitor"
"#,
        &[],
        expect![[r#"
            error: the output `s.output` is linked twice
             --> net.toml:3:4
              |
            2 |   "s.output -> w.input",
              |    -------- first linked here
            3 |   "s.output -> m.input",
              |    ^^^^^^^^ linked again here
              |
              = help: put an app that copies packets between, such as `tee`
        "#]],
    );
}

#[test]
fn a_required_port_left_open_is_shown_at_its_app() {
    refused_by_the_loader(
        r#"[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: the output `s.output` is not linked
             --> net.toml:1:7
              |
            1 | [apps.s]
              |       ^ `source` needs it: the packets that are made
              |
              = help: add "s.output -> OTHER.INPUT" to `links`

            error: the input `w.input` is not linked
             --> net.toml:3:7
              |
            3 | [apps.w]
              |       ^ `writer` needs it: packets to write
              |
              = help: add "OTHER.OUTPUT -> w.input" to `links`
        "#]],
    );
}

#[test]
fn an_app_with_too_few_links_is_answered_with_the_minimum() {
    refused_by_the_loader(
        r#"links = ["s.output -> t.input"]
[apps.s]
app = "source"
[apps.t]
app = "tee"
"#,
        &[],
        expect![[r#"
            error: `t` has no outputs linked
             --> net.toml:4:7
              |
            4 | [apps.t]
              |       ^ `tee` needs 1 or more: the copies
              |
              = help: add "t.NAME -> OTHER.INPUT" to `links`, with any name for the port
        "#]],
    );
}

#[test]
fn a_link_from_an_app_to_itself_is_refused() {
    refused_by_the_loader(
        r#"links = ["t.a -> t.input", "s.output -> u.input", "u.a -> m.input"]
[apps.t]
app = "tee"
[apps.u]
app = "tee"
[apps.m]
app = "monitor"
[apps.s]
app = "source"
"#,
        &[],
        expect![[r#"
            error: a link leads from `t` to itself
             --> net.toml:1:10
              |
            1 | links = ["t.a -> t.input", "s.output -> u.input", "u.a -> m.input"]
              |          ^^^^^^^^^^^^^^^^
              |
              = help: put another app between
        "#]],
    );
}

#[test]
fn a_link_that_is_written_twice_is_one_error() {
    refused_by_the_loader(
        r#"links = [
  "s.output -> m.input",
  "s.output   ->   m.input",
]
[apps.s]
app = "source"
[apps.m]
app = "monitor"
"#,
        &[],
        expect![[r#"
            error: the link `s.output -> m.input` is written twice
             --> net.toml:3:3
              |
            2 |   "s.output -> m.input",
              |   --------------------- first written here
            3 |   "s.output   ->   m.input",
              |   ^^^^^^^^^^^^^^^^^^^^^^^^^ written again here
              |
              = help: remove one of them
        "#]],
    );
}

#[test]
fn a_link_without_a_port_is_answered_with_the_line_to_write() {
    refused_by_the_loader(
        r#"links = ["s -> w", "w -> m", "nobody -> s"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
[apps.m]
app = "monitor"
"#,
        &[],
        expect![[r#"
            error: `s -> w` does not say which input of `w`
             --> net.toml:1:16
              |
            1 | links = ["s -> w", "w -> m", "nobody -> s"]
              |                ^ `writer` has several inputs
              |
              = help: write "s.output -> w.input" or "s.output -> w.control"

            error: `w` (writer) has no outputs
             --> net.toml:1:21
              |
            1 | links = ["s -> w", "w -> m", "nobody -> s"]
              |                     ^ nothing can be linked here

            error: `s` (source) has no inputs
             --> net.toml:1:41
              |
            1 | links = ["s -> w", "w -> m", "nobody -> s"]
              |                                         ^ nothing can be linked here
        "#]],
    );
}

#[test]
fn an_unknown_app_in_a_link_without_ports_is_answered_with_the_nearest() {
    refused_by_the_loader(
        r#"links = ["s -> monitr"]
[apps.s]
app = "source"
[apps.monitor]
app = "monitor"
"#,
        &[],
        expect![[r#"
            error: there is no app `monitr`
             --> net.toml:1:16
              |
            1 | links = ["s -> monitr"]
              |                ^^^^^^ did you mean `monitor`?
              |
              = help: the network has `s`, `monitor`
        "#]],
    );
}

#[test]
fn a_misspelled_app_type_hides_no_errors_in_keys_and_links() {
    refused(
        r#"links = ["s.outptu -> w.inptu"]
[apps.s]
app = "sorce"
szie = 100
rate = "0pps"
[apps.w]
app = "wirter"
"#,
        &[],
        expect![[r#"
            error: `s` (source) has no output `outptu`
             --> net.toml:1:13
              |
            1 | links = ["s.outptu -> w.inptu"]
              |             ^^^^^^ did you mean `output`?
              |
              = help: its outputs: `output`

            error: `w` (writer) has no input `inptu`
             --> net.toml:1:25
              |
            1 | links = ["s.outptu -> w.inptu"]
              |                         ^^^^^ did you mean `input`?
              |
              = help: its inputs: `input`, `control`

            error: there is no app type `sorce`
             --> net.toml:3:7
              |
            3 | app = "sorce"
              |       ^^^^^^^ did you mean `source`?
              |
              = help: there are `monitor`, `source`, `tee`, `writer`

            error: app type `source` has no key `szie`
             --> net.toml:4:1
              |
            4 | szie = 100
              | ^^^^ did you mean `size`?
              |
              = help: its keys: `size`, `count`, `rate`, `payload`, `mix`

            error: `s`: a source of rate 0 makes nothing
             --> net.toml:5:8
              |
            5 | rate = "0pps"
              |        ^^^^^^
              |
              = help: leave `rate` out for the highest rate

            error: app type `writer` needs the key `path`
             --> net.toml:6:7
              |
            6 | [apps.w]
              |       ^ missing here
              |
              = help: add `path = …` (text)

            error: there is no app type `wirter`
             --> net.toml:7:7
              |
            7 | app = "wirter"
              |       ^^^^^^^^ did you mean `writer`?
              |
              = help: there are `monitor`, `source`, `tee`, `writer`
        "#]],
    );
}

#[test]
fn a_missing_processor_is_shown_at_its_key() {
    let allowed = bellows_sys::cpu::allowed();
    let ranges = bellows_sys::cpu::ranges(&allowed);
    let report = report_by_the_loader(
        r#"links = ["s -> m"]
[engine]
cpu = 4095
[apps.s]
app = "source"
[apps.m]
app = "monitor"
"#,
        &[],
    );
    let report = report.replace(&format!("it may use {ranges}\n"), "it may use RANGES\n");
    expect![[r#"
        error: there is no processor 4095 for this process
         --> net.toml:3:7
          |
        3 | cpu = 4095
          |       ^^^^ no such processor
          |
          = help: it may use RANGES
    "#]]
    .assert_eq(&report);
}

#[test]
fn a_missing_memory_node_is_shown_at_its_key() {
    let nodes: Vec<usize> = bellows_sys::numa::nodes().iter().map(|node| node.number).collect();
    let help = match &*nodes {
        [] => "the kernel has no memory nodes: leave `numa` out".to_owned(),
        nodes => format!("it may use {}; nodes without processors do not count", bellows_sys::cpu::ranges(nodes)),
    };
    let report = report_by_the_loader(
        r#"links = ["s -> m"]
[workers.far]
numa = 1023
[apps.s]
app = "source"
[apps.m]
app = "monitor"
worker = "far"
"#,
        &[],
    );
    let report = report.replace(&help, "HELP");
    expect![[r#"
        error: there is no memory node 1023 for this process
         --> net.toml:3:8
          |
        3 | numa = 1023
          |        ^^^^ no such node
          |
          = help: HELP
    "#]]
    .assert_eq(&report);
}

#[test]
fn a_pool_that_is_too_small_for_its_workers_is_refused_with_the_minimum() {
    let network = |packets: usize| {
        format!(
            r#"links = ["s -> m"]
[engine]
pool = {packets}
[workers.one]
[workers.two]
[apps.s]
app = "source"
worker = "one"
[apps.m]
app = "monitor"
worker = "two"
"#
        )
    };
    refused_by_the_loader(
        &network(191),
        &[],
        expect![[r#"
            error: a pool of 191 packets is too small for 3 workers
             --> net.toml:3:8
              |
            3 | pool = 191
              |        ^^^ too small
              |
              = help: set `pool` in [engine] to 192 or more: 64 for each worker
        "#]],
    );
    assert!(common::loaded(&network(192), &[]).is_ok_and(|loaded| loaded.engine.pool == 192));
}

#[test]
fn a_text_that_is_not_a_link_is_answered_with_the_syntax() {
    refused(
        r#"links = ["s.output > w.input", 7]
[apps.m]
app = "monitor"
"#,
        &[],
        expect![[r#"
            error: `s.output > w.input` is not a link
             --> net.toml:1:10
              |
            1 | links = ["s.output > w.input", 7]
              |          ^^^^^^^^^^^^^^^^^^^^
              |
              = help: write it as "app.output -> other.input"

            error: a link must be text
             --> net.toml:1:32
              |
            1 | links = ["s.output > w.input", 7]
              |                                ^ this is an integer
              |
              = help: write it as "app.output -> other.input"

            warning: `m` is linked to nothing
             --> net.toml:2:7
              |
            2 | [apps.m]
              |       ^ no packet comes here or leaves
              |
              = help: link it, or remove it
        "#]],
    );
}

#[test]
fn an_app_without_links_causes_a_warning() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "sourc"
[apps.w]
app = "writer"
path = "w.pcap"
[apps.m]
app = "monitor"
"#,
        &[],
        expect![[r#"
            error: there is no app type `sourc`
             --> net.toml:3:7
              |
            3 | app = "sourc"
              |       ^^^^^^^ did you mean `source`?
              |
              = help: there are `monitor`, `source`, `tee`, `writer`

            warning: `m` is linked to nothing
             --> net.toml:7:7
              |
            7 | [apps.m]
              |       ^ no packet comes here or leaves
              |
              = help: link it, or remove it
        "#]],
    );
}

#[test]
fn a_syntax_error_is_shown_at_its_place() {
    refused(
        r#"links = [
  "s.output -> w.input",

[apps.s]
app = "source"
"#,
        &[],
        expect![[r#"
            error: this is not TOML: string values must be quoted
             --> net.toml:4:2
              |
            4 | [apps.s]
              |  ^^^^^^ expected literal string
              |
              = help: is the list before this line closed with `]`?
        "#]],
    );
}

#[test]
fn several_syntax_errors_are_found_at_once() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = source

[apps.w]
app = "writer"
path = "w.pcap
"#,
        &[],
        expect![[r#"
            error: this is not TOML: string values must be quoted
             --> net.toml:3:7
              |
            3 | app = source
              |       ^^^^^^ expected literal string

            error: this is not TOML: invalid basic string
             --> net.toml:7:15
              |
            7 | path = "w.pcap
              |               ^ expected `"`
        "#]],
    );
}

#[test]
fn a_key_written_twice_is_refused() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
path = "v.pcap"
"#,
        &[],
        expect![[r#"
            error: this is not TOML: duplicate key
             --> net.toml:7:1
              |
            7 | path = "v.pcap"
              | ^^^^
              |
              = help: keep one of them: a key or table is written once in a file
        "#]],
    );
}

#[test]
fn a_table_in_braces_is_not_extended() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps]
s = { app = "source" }
[apps.s.more]
count = 1
"#,
        &[],
        expect![[r#"
            error: this is not TOML: cannot extend value of type inline table with a dotted key
             --> net.toml:4:7
              |
            4 | [apps.s.more]
              |       ^
              |
              = help: a table in braces is whole: write the keys into the braces, or give it a heading `[…]` instead of them
        "#]],
    );
}

#[test]
fn an_unknown_table_is_answered_with_the_nearest() {
    refused(
        r#"[app.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: a network file has no key `app`
             --> net.toml:1:2
              |
            1 | [app.s]
              |  ^^^ did you mean `apps`?
              |
              = help: it has `include`, `links`, `[engine]`, `[workers.NAME]`, `[objects.NAME]` and `[apps.NAME]`
        "#]],
    );
}

#[test]
fn engine_settings_are_checked_like_any_other() {
    refused(
        r#"links = ["s.output -> w.input"]
[engine]
burst = 2048
losless = true
schedule = "flt"
name = "a b"
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `burst` must be an integer 1 to 1,024
             --> net.toml:3:9
              |
            3 | burst = 2048
              |         ^^^^ out of range

            error: `[engine]` has no key `losless`
             --> net.toml:4:1
              |
            4 | losless = true
              | ^^^^^^^ did you mean `lossless`?
              |
              = help: its keys: `burst`, `pool`, `large_packets`, `lossless`, `busywait`, `cpu`, `numa`, `schedule`, `sampling`, `events`, `breath_limit`, `keep_capabilities`, `name`

            error: `schedule` cannot be `flt`
             --> net.toml:5:12
              |
            5 | schedule = "flt"
              |            ^^^^^ did you mean `flat`?
              |
              = help: it is one of `nested`, `flat`, `native`

            error: `a b` is not a valid name for a running network
             --> net.toml:6:8
              |
            6 | name = "a b"
              |        ^^^^^ invalid name
              |
              = help: use at most 64 letters, digits, `-`, `_` and `.`, not beginning with `.`
        "#]],
    );
}

#[test]
fn parts_of_the_wrong_type_are_answered_with_how_to_write_them() {
    refused(
        r#"links = "s.output -> w.input"
apps = [1]
engine = 7
include = "x.toml"
"#,
        &[],
        expect![[r#"
            error: `links` must be a list of links
             --> net.toml:1:9
              |
            1 | links = "s.output -> w.input"
              |         ^^^^^^^^^^^^^^^^^^^^^ not a list
              |
              = help: write `links = ["app.output -> other.input"]`

            error: `apps` must be a table of apps
             --> net.toml:2:8
              |
            2 | apps = [1]
              |        ^^^ not a table
              |
              = help: write `[apps.NAME]` on a line of its own, and the app's keys below

            error: `engine` must be a table
             --> net.toml:3:10
              |
            3 | engine = 7
              |          ^ not a table
              |
              = help: write `[engine]` on a line of its own, and its keys below

            error: `include` must be a list of files
             --> net.toml:4:11
              |
            4 | include = "x.toml"
              |           ^^^^^^^^ this is text
              |
              = help: write `include = ["other.toml"]`; paths are relative to this file
        "#]],
    );
}

#[test]
fn an_empty_network_is_refused() {
    refused_by_the_loader(
        r"# nothing yet
",
        &[],
        expect![[r#"
            error: the network has no apps
            --> net.toml
             = help: describe each in a table: `[apps.NAME]`, and below it `app = "TYPE"`
        "#]],
    );
}

#[test]
fn a_variable_that_is_not_set_is_shown_where_it_is_used() {
    refused_by_the_loader(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "${DIR}/${NAME}.pcap"
"#,
        &[],
        expect![[r#"
            error: the variable `NAME` is not set
             --> net.toml:6:16
              |
            6 | path = "${DIR}/${NAME}.pcap"
              |                ^^^^^^^ is not set
              |
              = help: set it in the environment, or write `${NAME:-default}`
        "#]],
    );
}

#[test]
fn a_variable_that_is_not_closed_or_has_no_name_is_refused() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "${DIR/w.pcap"
flush = "${1st}"
"#,
        &[],
        expect![[r#"
            error: `${` is not closed
             --> net.toml:6:8
              |
            6 | path = "${DIR/w.pcap"
              |        ^^^^^^^^^^^^^^ a `}` is missing
              |
              = help: write `${VARIABLE}`, or `$$` for a dollar sign

            error: `1st` is not a valid variable name
             --> net.toml:7:10
              |
            7 | flush = "${1st}"
              |          ^^^^^^ letters, digits and `_` only
              |
              = help: write `${VARIABLE}` or `${VARIABLE:-default}`, or `$$` for a dollar sign
        "#]],
    );
}

#[test]
fn a_variable_of_the_wrong_type_is_refused() {
    refused_by_the_loader(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
size = "${DIR}"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `size` must be an integer 14 to 9,000
             --> net.toml:4:8
              |
            4 | size = "${DIR}"
              |        ^^^^^^^^ this is `out`
        "#]],
    );
}

#[test]
fn errors_in_settings_are_shown_in_the_setting() {
    refused_by_the_loader(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &["apps.w.flush=soon", "apps.x.path=y", "engine.burst=0", "apps.s.szie=7", "links=[]", "nothing"],
        expect![[r#"
            error: `flush`: `soon` is not a duration
             --> --set:1:14
              |
            1 | apps.w.flush=soon
              |              ^^^^
              |
              = help: write it with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`), like `10s`, `1.5ms`, `200us`, `3m`

            error: there is no app `x`
             --> --set:1:6
              |
            1 | apps.x.path=y
              |      ^ unknown app
              |
              = help: the network has `s`, `w`

            error: `burst` must be an integer 1 to 1,024
             --> --set:1:14
              |
            1 | engine.burst=0
              |              ^ out of range

            error: app type `source` has no key `szie`
             --> --set:1:8
              |
            1 | apps.s.szie=7
              |        ^^^^ did you mean `size`?
              |
              = help: its keys: `size`, `count`, `rate`, `payload`, `mix`

            error: only keys of apps, of objects, of workers and of the engine can be set
             --> --set:1:1
              |
            1 | links=[]
              | ^^^^^ no such key
              |
              = help: write `apps.NAME.key=value`, `objects.NAME.key=value`, `workers.NAME.key=value` or `engine.key=value`; without a value the key is removed

            error: this sets nothing
             --> --set:1:1
              |
            1 | nothing
              | ^^^^^^^ no `key=value`
              |
              = help: write `apps.NAME.key=value`, `objects.NAME.key=value`, `workers.NAME.key=value` or `engine.key=value`; without a value the key is removed
        "#]],
    );
}

#[test]
fn control_characters_are_escaped() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
[apps.w]
app = "writer"
path = "w.pcap"
"\u001b[31m" = 1
"#,
        &[],
        expect![[r#"
            error: app type `writer` has no key `\u{1b}[31m`
             --> net.toml:7:1
              |
            7 | "\u001b[31m" = 1
              | ^^^^^^^^^^^^ unknown key
              |
              = help: its keys: `path`, `flush`, `append`
        "#]],
    );
}

#[test]
fn a_long_line_is_shown_in_part() {
    refused(
        r#"links = ["s.output -> w.input"]
[apps.s]
app = "source"
mix = [{ size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 7 }, { size = 60, weight = 256 }]
[apps.w]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: `mix[8].weight` must be an integer 0 to 255
             --> net.toml:4:246
              |
            4 | ...size = 60, weight = 7 }, { size = 60, weight = 256 }]
              |                                                   ^^^ out of range
        "#]],
    );
}

#[test]
fn all_errors_are_reported_together() {
    refused(
        r#"links = [
  "s.output -> w.input",
  "s.outptu -> t.input",
  "t.a -> nowhere.input",
  "t.b",
]

[engine]
burst = 0

[apps.s]
app = "source"
size = 3
rate = "fast"

[apps.t]
app = "te"

[apps.w]
app = "writer"
flush = "10"
apend = true
"#,
        &["apps.w.path=w"],
        expect![[r#"
            error: `s` (source) has no output `outptu`
             --> net.toml:3:6
              |
            3 |   "s.outptu -> t.input",
              |      ^^^^^^ did you mean `output`?
              |
              = help: its outputs: `output`

            error: there is no app `nowhere`
             --> net.toml:4:11
              |
            4 |   "t.a -> nowhere.input",
              |           ^^^^^^^ unknown app
              |
              = help: the network has `s`, `t`, `w`

            error: `t.b` is not a link
             --> net.toml:5:3
              |
            5 |   "t.b",
              |   ^^^^^
              |
              = help: write it as "app.output -> other.input"

            error: `burst` must be an integer 1 to 1,024
             --> net.toml:9:9
              |
            9 | burst = 0
              |         ^ out of range

            error: `size` must be an integer 14 to 9,000
              --> net.toml:13:8
               |
            13 | size = 3
               |        ^ out of range

            error: `rate`: `fast` is not a rate
              --> net.toml:14:8
               |
            14 | rate = "fast"
               |        ^^^^^^
               |
               = help: write it like `1000`, `250k`, `1.5M`

            error: there is no app type `te`
              --> net.toml:17:7
               |
            17 | app = "te"
               |       ^^^^ did you mean `tee`?
               |
               = help: there are `monitor`, `source`, `tee`, `writer`

            error: `flush`: `10` is not a duration
              --> net.toml:21:9
               |
            21 | flush = "10"
               |         ^^^^
               |
               = help: write it with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`), like `10s`, `1.5ms`, `200us`, `3m`

            error: app type `writer` has no key `apend`
              --> net.toml:22:1
               |
            22 | apend = true
               | ^^^^^ did you mean `append`?
               |
               = help: its keys: `path`, `flush`, `append`

            error: `w`: `w` does not say what kind of file it is
             --> --set:1:13
              |
            1 | apps.w.path=w
              |             ^
              |
              = help: let it end in `.pcap` or `.pcapng`
        "#]],
    );
}

#[test]
fn an_app_on_a_worker_without_a_table_is_reported() {
    refused_by_the_loader(
        r#"links = ["a.output -> b.input"]
[workers.main]
[workers.two]
[apps.a]
app = "source"
worker = "tow"
[apps.b]
app = "writer"
path = "w.pcap"
"#,
        &[],
        expect![[r#"
            error: the worker `main` needs no table
             --> net.toml:2:10
              |
            2 | [workers.main]
              |          ^^^^ the engine's own thread
              |
              = help: set its processor with `cpu` in [engine], or choose another name

            warning: no app runs on the worker `two`
             --> net.toml:3:10
              |
            3 | [workers.two]
              |          ^^^ nothing to do
              |
              = help: write `worker = "two"` in the table of an app, or remove the worker

            error: there is no worker `tow`
             --> net.toml:6:10
              |
            6 | worker = "tow"
              |          ^^^^^ did you mean `two`?
              |
              = help: the network has `main`, `two`; describe others in tables `[workers.NAME]`
        "#]],
    );
}
