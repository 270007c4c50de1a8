//! Requests of control clients to apps and to the objects that apps share.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a request was not carried out: a message of one or several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Whether the request is wrong. Otherwise something else failed.
    pub is_mistake: bool,
    /// What is wrong, and how to fix it.
    pub message: String,
}

impl RequestError {
    /// A request that cannot be carried out as it is.
    pub fn mistake(message: impl Into<String>) -> RequestError {
        RequestError { is_mistake: true, message: message.into() }
    }

    /// A failure that is not the request's fault.
    pub fn failure(message: impl Into<String>) -> RequestError {
        RequestError { is_mistake: false, message: message.into() }
    }
}

/// The requests of one client, which an app or object answers one after the other.
///
/// It lives for as long as the client is connected, on the client's thread, never on a worker's. Each request takes
/// effect as a whole or not at all. What a client has prepared in several requests and not finished ends with it: when
/// it is dropped, nothing of that may remain. Requests are bounded in length, and each should be short: clients divide
/// long ones, and so can show their progress and end them.
pub trait Conversation: Send {
    /// Answers a request.
    ///
    /// # Errors
    /// If the request is not understood, or cannot be carried out.
    fn answer(&mut self, request: Value) -> Result<Value, RequestError>;
}

/// A [`Conversation`] whose requests and answers have types.
pub trait Requests: Send {
    /// A request, as serde reads it from JSON.
    type Request: DeserializeOwned;

    /// An answer, as serde writes it to JSON.
    type Answer: Serialize;

    /// Answers a request.
    ///
    /// # Errors
    /// If it cannot be carried out.
    fn answer(&mut self, request: Self::Request) -> Result<Self::Answer, RequestError>;
}

impl<R: Requests> Conversation for R {
    fn answer(&mut self, request: Value) -> Result<Value, RequestError> {
        let request = serde_json::from_value(request)
            .map_err(|error| RequestError::mistake(format!("not a request that this object answers: {error}")))?;
        let answer = Requests::answer(self, request)?;
        serde_json::to_value(answer)
            .map_err(|error| RequestError::failure(format!("the answer cannot be written as JSON: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    struct Adder(u64);

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase", deny_unknown_fields)]
    enum Request {
        Add(u64),
        Fail,
    }

    impl Requests for Adder {
        type Request = Request;
        type Answer = u64;

        fn answer(&mut self, request: Request) -> Result<u64, RequestError> {
            match request {
                Request::Add(number) => {
                    self.0 += number;
                    Ok(self.0)
                }
                Request::Fail => Err(RequestError::failure("it failed")),
            }
        }
    }

    #[test]
    fn requests_have_types() {
        let mut adder: Box<dyn Conversation> = Box::new(Adder(1));
        assert_eq!(adder.answer(json!({ "add": 2 })), Ok(json!(3)));
        assert_eq!(adder.answer(json!({ "add": 2 })), Ok(json!(5)));
        assert_eq!(adder.answer(json!("fail")), Err(RequestError::failure("it failed")));
        for wrong in [json!({ "add": -1 }), json!({ "subtract": 1 }), json!(null), json!([[]])] {
            let error = adder.answer(wrong).unwrap_err();
            assert!(error.is_mistake && error.message.starts_with("not a request"), "{error:?}");
        }
    }
}
