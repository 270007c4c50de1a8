//! The picture of a comparison of two versions.

use bellows_campaign::{CompareOptions, Comparison, load};
use bellows_report::Picture;
use bellows_testkit::scratch;

use crate::folder::make_runs_of;
use crate::forms::assert_is_well_formed;

/// `new` is quicker with small sizes, without a difference with medium ones, and fails with large ones. Zeros have no
/// shares.
const CAMPAIGN: &str = r#"
name = "two"
seed = 4
repeats = 8
paired = "version"
command = { shell = "n=$(( ({block} * 7919 + {version.base}) % 5 )); case {size} in small) echo took $(( {version.base} + n ));; medium) echo took $(( 50 + n ));; large) test {version} = old && echo took 9;; none) echo took $(( n - n ));; esac" }

[factors]
version = [{ label = "old", base = "40" }, { label = "new", base = "17" }]
size = ["small", "medium", "large", "none"]

[score]
name = "time"
unit = "ms"
better = "lower"
pattern = 'took (?<time>\d+)'
"#;

#[test]
fn each_comparison_has_a_row() {
    let scratch = scratch();
    let (file, folder) = (scratch.path().join("two.toml"), scratch.path().join("two.results"));
    std::fs::write(&file, CAMPAIGN).unwrap();
    let loaded = load(&file).unwrap_or_else(|error| panic!("{error}"));
    make_runs_of(&loaded, &folder);
    let comparison = Comparison::read(&folder, &loaded.campaign, &CompareOptions::default()).unwrap();
    let picture = Picture::of_comparison(&comparison);
    assert_is_well_formed("two", &picture);
    let document = roxmltree::Document::parse(&picture.svg).unwrap();
    let texts: Vec<&str> =
        document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text()).collect();
    for text in
        ["faster: small", "medium", "new fails: large", "none", "0 ms [0, 0]", "no interval", "change of the score (%)"]
    {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    let dots = document.descendants().filter(|node| node.attribute("class") == Some("dot")).count();
    assert_eq!(dots, 2, "only shares have intervals on the axis");
}
