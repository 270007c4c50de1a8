//! The reference of the JSON that commands print has all their keys, and no others.
//!
//! That the JSON of every other test has its form is checked where the tests run commands.

mod campaigns;
mod control;
mod inspected;
mod measured;
mod networks;
mod routed;
mod states;
mod web;

use bellows::json_reference::{Chapter, Form, Found};

/// Fails the test if a key of a chapter was not found, unless other tests compare its form as a whole, or it is rare.
/// Keys that are included from other chapters are met in their tests.
fn assert_met(chapter: Chapter, found: &Found, in_other_tests: &[&str], rare: &[(&str, &str)]) {
    let forms = chapter.forms();
    assert!(!forms.is_empty());
    for title in in_other_tests {
        assert!(forms.iter().any(|form| form.title == *title), "there is no form {title}");
    }
    for (title, name) in rare {
        let is_key = |form: &&Form| form.title == *title && form.keys.iter().any(|key| key.name == *name);
        assert!(forms.iter().any(is_key), "there is no key `{name}` of {title}");
    }
    let forms: Vec<&Form> = forms.into_iter().filter(|form| !in_other_tests.contains(&form.title)).collect();
    assert_keys_met(&forms, found, rare);
}

/// Fails the test if an own key of these forms was not found, unless it is rare.
fn assert_keys_met(forms: &[&'static Form], found: &Found, rare: &[(&str, &str)]) {
    for form in forms {
        for key in form.keys.iter().map(|key| (form.title, key.name)) {
            assert!(found.contains(&key) || rare.contains(&key), "no command printed the key `{}` of {}", key.1, key.0);
        }
    }
}
