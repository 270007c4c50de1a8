//! All forms of reports, over results of many shapes.

use std::collections::HashMap;

use bellows_report::{Picture, Report, ReportError, ReportOptions};
use unicode_width::UnicodeWidthStr;

use crate::data::{CONFIGS, document, report, shapes, source};

/// Checks that a picture has only what it may have.
pub fn assert_is_well_formed(shape: &str, picture: &Picture) {
    let parsed = roxmltree::Document::parse(&picture.svg);
    let document = parsed.unwrap_or_else(|error| panic!("{shape}, {}: {error}", picture.name));
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    let known = ["svg", "title", "style", "rect", "text", "path", "g", "circle"];
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(known.contains(&node.tag_name().name()), "{shape}: {node:?}");
        for attribute in node.attributes() {
            let value = attribute.value();
            let is_geometry = !matches!(attribute.name(), "class" | "role" | "aria-label");
            assert!(!is_geometry || !value.contains("NaN") && !value.contains("inf"), "{shape}: {attribute:?}");
            assert!(!value.contains("http"), "{shape}: {attribute:?}");
        }
    }
}

#[test]
fn every_picture_is_well_formed() {
    for (shape, text) in shapes() {
        let pictures = report(&text).pictures();
        let mut names = HashMap::new();
        for picture in &pictures {
            assert_is_well_formed(shape, picture);
            assert!(names.insert(picture.name.clone(), ()).is_none(), "{shape}: {} twice", picture.name);
            let is_plain = picture.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            assert!(is_plain, "{}", picture.name);
        }
        assert!(shape == "no rows" || !pictures.is_empty(), "{shape}");
    }
}

#[test]
fn pages_escape_labels_and_need_nothing_else() {
    for (shape, text) in shapes() {
        let html = report(&text).html().unwrap();
        assert!(html.starts_with("<!doctype html>"), "{shape}: {:?}", &html[..40]);
        for forbidden in ["<script", "</svg>,", "src=", "@import", "url(", "<link", "\u{1b}", "\u{202e}", "\u{0}"] {
            assert!(!html.contains(forbidden), "{shape}: {forbidden:?}");
        }
        for address in html.match_indices("http").map(|(at, _)| &html[at..(at + 26).min(html.len())]) {
            assert!(
                address.starts_with("http://www.w3.org/2000/svg") || address.starts_with("http-equiv"),
                "{address}"
            );
        }
        assert!(html.contains(">Confirmation</h2>") && html.contains("Exploration"), "{shape}");
        assert!(html.ends_with("</html>") || html.ends_with("</html>\n"));
    }
    let html = report(&shapes().iter().find(|(shape, _)| *shape == "markup").unwrap().1).html().unwrap();
    assert!(html.contains("&lt;script&gt;alert(0)&lt;"), "labels are shown");
}

#[test]
fn json_has_all_of_it() {
    for (shape, text) in shapes() {
        let report = report(&text);
        let json = serde_json::to_value(&report).unwrap_or_else(|error| panic!("{shape}: {error}"));
        assert_eq!(json["sections"].as_array().unwrap().len(), report.sections.len());
        for section in json["sections"].as_array().unwrap() {
            assert!(section["runs"].as_u64() >= section["scored"].as_u64(), "{shape}");
            let failed: u64 =
                section["failures"].as_array().unwrap().iter().map(|it| it["runs"].as_u64().unwrap()).sum();
            assert_eq!(failed, section["runs"].as_u64().unwrap() - section["scored"].as_u64().unwrap(), "{shape}");
        }
    }
}

#[test]
fn text_fits_the_terminal() {
    for (shape, text) in shapes() {
        let report = report(&text);
        for width in [40, 80, 132] {
            let text = report.text(width);
            for line in text.lines() {
                assert!(line.width() <= width, "{shape}: {} columns: {line}", line.width());
                assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shape}: {line:?}");
            }
            assert!(text.contains("CONFIRMATION"), "{shape}");
        }
    }
}

#[test]
fn sections_hold_one_unit_each() {
    let report = report(&document(6, 1));
    let units: Vec<&str> = report.sections.iter().map(|section| section.unit.as_str()).collect();
    assert_eq!(units.len(), 2);
    assert!(units.contains(&"Gbps") && units.contains(&"Mpps"));
    for section in &report.sections {
        assert_eq!(section.factor.as_deref(), Some("snabb"));
        assert!(section.others.contains(&"config".to_owned()));
        assert_eq!(section.runs, if section.unit == "Gbps" { 60 } else { 180 });
    }
    let failed = report.sections.iter().find(|section| section.unit == "Mpps").unwrap();
    assert!(failed.failures[0].reason == "no score" && failed.failures[0].runs > 0);
    assert!(failed.matrix.rows.iter().any(|row| row.marks.contains(&"most failures")));
}

#[test]
fn the_planted_difference_is_found_and_no_other() {
    let report = report(&document(30, 2));
    let section = report.sections.iter().find(|section| section.unit == "Gbps").unwrap();
    let split = section.splits.iter().find(|split| split.factor == "config").unwrap();
    let contrasts = split.contrasts.as_ref().unwrap();
    assert_eq!((contrasts.means, contrasts.comparisons, contrasts.rows.len()), (10, 45, 5));
    for row in &contrasts.rows {
        let panel = &split.panels[row.panel.unwrap()];
        assert_eq!(row.low > 0.0, panel == "filter", "{panel}: {row:?}");
        assert_eq!(row.label, "vring-opt \u{2212} next");
    }
    assert!(split.statement.contains("5 comparisons of all 45 between 10 means"), "{}", split.statement);
    assert!(section.findings.iter().any(|it| it.contains("filter: vring-opt")), "{:?}", section.findings);
}

#[test]
fn unknown_names_are_errors_with_the_known_ones() {
    let source = source(&document(2, 1));
    let of = |by: Option<&str>, score: Option<&str>| {
        let options = ReportOptions { by: by.map(str::to_owned), score: score.map(str::to_owned) };
        Report::of(&source, &options)
    };
    let error = of(Some("konfig"), None).unwrap_err();
    assert!(matches!(error, ReportError::Factor { .. }));
    assert_eq!(
        error.to_string(),
        "the results have no factor konfig; there are benchmark, pktsize, config, snabb, kernel, qemu"
    );
    assert_eq!(of(None, Some("speed")).unwrap_err().to_string(), "the results have no score speed; there are score");
    assert_eq!(of(Some("config"), Some("score")).unwrap().sections[0].factor.as_deref(), Some("config"));
    assert!(of(Some("kernel"), None).unwrap().sections[0].factor.is_none(), "it has one level");
}

/// The document's comparison of all pairs of `snabb` and `config`: 10 means of 210 runs each.
#[test]
fn the_exploration_of_the_document_is_that_of_the_document() {
    let (difference, low, high) = (-0.65285714, -1.1857199, -0.11999441);
    // Half a width is the quantile of the studentized range times the error of a mean.
    let error = (high - low) / 2.0 / 4.47899;
    let deviation = error * (210.0f64 * 2_090.0 / 2_100.0).sqrt();
    let mut text = String::from("config,snabb,id,score,unit\n");
    for (place, config) in CONFIGS.iter().enumerate() {
        for snabb in ["next", "vring-opt"] {
            let effect = if snabb == "vring-opt" && *config == "filter" { difference } else { 0.0 };
            for id in 1..=210 {
                let score = 9.0 + place as f64 + effect + if id % 2 == 0 { deviation } else { -deviation };
                text += &format!("{config},{snabb},{id},{score},Gbps\n");
            }
        }
    }
    let report = report(&text);
    let split = &report.sections[0].splits[0];
    let contrasts = split.contrasts.as_ref().unwrap();
    assert_eq!((contrasts.means, contrasts.comparisons), (10, 45));
    assert_eq!(report.sections[0].analysis.as_ref().unwrap().df, 2_090.0);
    let filter = contrasts.rows.iter().find(|row| split.panels[row.panel.unwrap()] == "filter").unwrap();
    let near = |one: f64, other: f64, within: f64| assert!((one - other).abs() < within, "{one} {other}");
    near(filter.difference, difference, 1e-9);
    near(filter.low, low, 2e-5);
    near(filter.high, high, 2e-5);
    near(filter.p, 0.004_237_1, 1e-6);
    assert!(
        report.sections[0].findings.iter().any(|it| it.contains("filter: vring-opt \u{2212} next \u{2212}0.653 Gbps"))
    );
}
