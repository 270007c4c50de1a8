//! Campaigns.

use bellows::forms::{Chapter, Found};

use crate::assert_met;
use crate::support::{Sandbox, forms};

const CAMPAIGN: &str = r#"
name = "sizes"
repeats = 1
command = { shell = "case {size} in 60) echo rate=1.5;; 64) echo;; *) echo broken >&2; exit 3;; esac" }
[factors]
size = ["60", "64", "9000"]
[versions]
shell = { shell = "echo 1" }
[score]
name = "rate"
unit = "Mpps"
pattern = 'rate=(?<rate>[0-9.]+)'
[[hypothesis]]
name = "small packets are faster"
factor = "size"
compare = ["60", "64"]
direction = "greater"
repeats = 8
"#;

#[test]
fn what_campaigns_report() {
    let sandbox = Sandbox::new();
    let mut found = Found::new();
    let mut print = |words: &[&str]| forms::compare(words, &sandbox.bellows(words).stdout, &mut found);
    let campaign = sandbox.write("sizes.toml", CAMPAIGN);
    sandbox.bellows(&["campaign", "register", &campaign]).fine();
    print(&["campaign", "run", &campaign, "--json"]);
    print(&["campaign", "status", &campaign, "--json"]);
    // Only on some machines.
    let rare = [("Run of a campaign", "disturbed")];
    assert_met(Chapter::Campaigns, &found, &[], &rare);
}
