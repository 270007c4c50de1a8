//! The parameters of a request: of its query, or of its body.

use std::collections::BTreeMap;

/// The parameters of a query, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

/// The maximum number of parameters.
const MAX_PARAMETERS: usize = 16;

impl Parameters {
    /// The parameters of a query such as `network=router&app=a%2Fb`. Of parameters of one name the last counts. Bytes
    /// that are not UTF-8 are replaced, and escapes that are none stand for themselves.
    pub fn of(query: &str) -> Parameters {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(MAX_PARAMETERS);
        Parameters(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(name), decoded(value))
                })
                .collect(),
        )
    }

    /// A parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// A text with `%20` and `+` decoded.
fn decoded(text: &str) -> String {
    let (mut bytes, text) = (Vec::with_capacity(text.len()), text.as_bytes());
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((16 * high + low) as u8);
                at += 2;
            }
            (b'+', ..) => bytes.push(b' '),
            (byte, ..) => bytes.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::of("network=ada%2Frouter&link=a.b+-%3E+c.d&&empty&x=%zz%4");
        assert_eq!(parameters.get("network"), Some("ada/router"));
        assert_eq!(parameters.get("link"), Some("a.b -> c.d"));
        assert_eq!((parameters.get("empty"), parameters.get("x")), (Some(""), Some("%zz%4")));
        assert_eq!(parameters.get("none"), None);
    }

    proptest! {
        #[test]
        fn any_text_survives(text in any::<String>()) {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let parameters = Parameters::of(&format!("x={encoded}"));
            prop_assert_eq!(parameters.get("x"), Some(&*text));
            // No query is an error.
            Parameters::of(&text);
        }
    }
}
