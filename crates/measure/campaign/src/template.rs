//! Texts with placeholders such as `{factor}`, which a run fills in.

use std::fmt;

use serde::Serialize;

/// A text with placeholders.
///
/// `{factor}` is the level's label and `{factor.key}` one of its values; `{run}` is the run's id and `{block}` the
/// number of its block. `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Placeholder(Placeholder),
}

/// What a placeholder stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    Run,
    Block,
    Label(String),
    Value(String, String),
}

/// What a placeholder is filled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PlaceholderValue {
    /// One word.
    Text(String),
    /// Several words, each an argument of its own.
    Words(Vec<String>),
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// What is wrong with its braces.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err("a `}` without a `{`; write `}}` for a brace".to_owned());
            }
            let Some((name, after)) = rest.split_once('}') else {
                return Err("a `{` without a `}`; write `{{` for a brace".to_owned());
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Placeholder(Placeholder::parse(name)?));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Template { text: text.to_owned(), parts })
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// The placeholder that is the whole text.
    pub(crate) fn only_placeholder(&self) -> Option<&Placeholder> {
        match self.parts.as_slice() {
            [Part::Placeholder(placeholder)] => Some(placeholder),
            _ => None,
        }
    }

    /// The words of an argument: one, or those of the list that the argument stands for.
    pub(crate) fn words(&self, value: impl Fn(&Placeholder) -> PlaceholderValue) -> Vec<String> {
        match self.only_placeholder().map(&value) {
            Some(PlaceholderValue::Words(words)) => words,
            Some(PlaceholderValue::Text(text)) => vec![text],
            None => vec![self.fill(|placeholder| joined(value(placeholder)))],
        }
    }

    /// The text with all placeholders replaced.
    pub(crate) fn fill(&self, value: impl Fn(&Placeholder) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Placeholder(placeholder) => value(placeholder),
        };
        self.parts.iter().map(part).collect()
    }

    /// Whether a placeholder stands within quotes of a line of shell, which its own quotes would end.
    pub(crate) fn has_quoted_placeholder(&self) -> bool {
        let mut quote = None;
        for part in &self.parts {
            let Part::Text(text) = part else {
                if quote.is_some() {
                    return true;
                }
                continue;
            };
            let mut letters = text.chars();
            while let Some(letter) = letters.next() {
                match (quote, letter) {
                    (None | Some('"'), '\\') => drop(letters.next()),
                    (None, '\'' | '"' | '`') => quote = Some(letter),
                    (Some(open), letter) if open == letter => quote = None,
                    _ => {}
                }
            }
        }
        false
    }

    /// The text for a shell: each value is one quoted word, a list several.
    pub(crate) fn shell(&self, value: impl Fn(&Placeholder) -> PlaceholderValue) -> String {
        self.fill(|placeholder| match value(placeholder) {
            PlaceholderValue::Text(text) => shell_word(&text),
            PlaceholderValue::Words(words) => words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "),
        })
    }
}

pub(crate) fn joined(value: PlaceholderValue) -> String {
    match value {
        PlaceholderValue::Text(text) => text,
        PlaceholderValue::Words(words) => words.join(" "),
    }
}

/// A word that a shell reads back as this text.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,+@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

impl Placeholder {
    fn parse(name: &str) -> Result<Placeholder, String> {
        match name.split_once('.') {
            _ if name.is_empty() || name.contains('{') => {
                Err(format!("`{{{name}}}` is no placeholder; write `{{{{` and `}}}}` for braces"))
            }
            Some((factor, key)) => Ok(Placeholder::Value(factor.to_owned(), key.to_owned())),
            None if name == "run" => Ok(Placeholder::Run),
            None if name == "block" => Ok(Placeholder::Block),
            None => Ok(Placeholder::Label(name.to_owned())),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(placeholder: &Placeholder) -> PlaceholderValue {
        match placeholder {
            Placeholder::Run => PlaceholderValue::Text("3.7".to_owned()),
            Placeholder::Block => PlaceholderValue::Text("3".to_owned()),
            Placeholder::Label(factor) => PlaceholderValue::Text(format!("<{factor}>")),
            Placeholder::Value(..) => PlaceholderValue::Words(vec!["a b".to_owned(), "c".to_owned()]),
        }
    }

    #[test]
    fn placeholders_are_filled_and_doubled_braces_are_braces() {
        for (text, filled) in
            [("{size}", "<size>"), ("-s{size}{{x}}", "-s<size>{x}"), ("{run}/{block}", "3.7/3"), ("", "")]
        {
            assert_eq!(Template::parse(text).unwrap().words(value), [filled], "{text}");
        }
        assert_eq!(Template::parse("{set.options}").unwrap().words(value), ["a b", "c"]);
        assert_eq!(Template::parse("x {set.options}; {size}").unwrap().shell(value), "x 'a b' c; '<size>'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }

    #[test]
    fn single_braces_are_errors() {
        for text in ["{", "}", "{a", "a}", "{}", "{{}", "{a{b}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_an_error(text in "[{}a.]{0,12}") {
            if let Ok(template) = Template::parse(&text) {
                template.words(value);
                prop_assert_eq!(template.to_string(), text);
            }
        }

        #[test]
        fn a_shell_reads_each_word_back(text in "[^\0]{0,20}") {
            let line = format!("printf %s {}", shell_word(&text));
            let output = std::process::Command::new("sh").args(["-c", &line]).output();
            prop_assert_eq!(output.unwrap().stdout, text.into_bytes());
        }
    }
}
