//! Rules of access lists: what becomes of packets that match an expression.

use std::ops::Range;

use bellows_config::nearest;
use bellows_filter::access::{Effect, Expressed, Site, surprises};
use bellows_filter::{Mistake, SystemNames};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleAction {
    /// It passes.
    Permit,
    /// It is dropped.
    Deny,
    /// It is dropped, and its sender is told.
    Reject,
}

impl RuleAction {
    /// Its word.
    pub(crate) fn name(self) -> &'static str {
        ACTIONS.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
    }
}

/// The words for actions.
const ACTIONS: [(&str, RuleAction); 3] =
    [("permit", RuleAction::Permit), ("deny", RuleAction::Deny), ("reject", RuleAction::Reject)];

/// A rule: `permit tcp port 22`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) action: RuleAction,
    /// The expression; an empty one matches every packet.
    pub(crate) expression: String,
    /// Its meaning.
    pub(crate) expressed: Expressed,
    /// Where the expression begins in the text of the rule.
    start: usize,
}

/// Why a text is no rule, or not the one that it seems to be; how to correct it, and which bytes are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleError {
    pub(crate) message: String,
    pub(crate) help: String,
    pub(crate) range: Range<usize>,
}

impl Rule {
    /// Parses an action and an expression in the language of tcpdump behind it.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(crate) fn parse(text: &str) -> Result<Rule, RuleError> {
        let trimmed = text.trim_start();
        let start = text.len() - trimmed.len();
        let word = trimmed.split(char::is_whitespace).next().unwrap_or_default();
        let Some((_, action)) = ACTIONS.into_iter().find(|(name, _)| *name == word) else {
            let help = "begin with `permit`, `deny` or `reject`, and write an expression behind it, or nothing for all";
            let near = nearest(word, ACTIONS.map(|(name, _)| name)).map(|near| format!("did you mean `{near}`? "));
            let help = near.unwrap_or_default() + help;
            let message = if word.is_empty() {
                "a rule is missing".to_owned()
            } else {
                format!("`{word}` is not what can become of a packet")
            };
            return Err(RuleError { message, help, range: start..start + word.len() });
        };
        let rest = &trimmed[word.len()..];
        let expression = rest.trim().to_owned();
        let start = text.len() - rest.trim_start().len();
        match Expressed::parse(&expression, &SystemNames) {
            Ok(expressed) => Ok(Rule { action, expression, expressed, start }),
            Err(Mistake { range, message, help }) => {
                Err(RuleError { message, help, range: start + range.start..start + range.end })
            }
        }
    }
}

/// What may surprise about the meaning of rules: each with the position of the rule.
pub(crate) fn warnings(rules: &[Rule], site: Site) -> impl Iterator<Item = (usize, RuleError)> {
    let effect = |action| if action == RuleAction::Permit { Effect::Pass } else { Effect::Refuse };
    let with_effects: Vec<_> = rules.iter().map(|rule| (effect(rule.action), rule.expressed.clone())).collect();
    surprises(&with_effects, site).into_iter().map(|surprise| {
        let start = rules[surprise.rule].start;
        let range = start + surprise.range.start..start + surprise.range.end;
        (surprise.rule, RuleError { message: surprise.message, help: surprise.help, range })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        for (text, action, expression) in [
            ("permit tcp port 22", RuleAction::Permit, "tcp port 22"),
            ("  deny  src net 10.0.0.0/8 ", RuleAction::Deny, "src net 10.0.0.0/8"),
            ("reject", RuleAction::Reject, ""),
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!((rule.action, rule.expression.as_str()), (action, expression), "{text}");
        }
    }

    #[test]
    fn errors_have_places() {
        for (text, part, message) in [
            ("", "", "a rule is missing"),
            ("allow tcp", "allow", "`allow` is not what can become of a packet"),
            ("permt tcp", "permt", "`permt` is not what can become of a packet"),
            ("permit  tcp prot 22", "prot", ""),
        ] {
            let error = Rule::parse(text).unwrap_err();
            assert_eq!(&text[error.range.clone()], part, "{text}: {error:?}");
            assert!(error.message.contains(message) && !error.help.is_empty(), "{text}: {error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_rule_or_an_error_within_it(text in "(permit|deny|reject|é| |tcp|port|22|\\(|and){0,8}") {
            if let Err(error) = Rule::parse(&text) {
                assert!(error.range.start <= text.len() && text.get(error.range).is_some());
            }
        }
    }
}
