//! The conversations of a client with apps and shared objects: what it prepares there ends with its connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bellows_config::nearest;
use bellows_engine::{Addressee, Conversation, RequestError, Status};
use bellows_inspect::control::Reply;
use serde_json::Value;

/// The conversations of a client, each with the one that it is with.
#[derive(Default)]
pub struct Conversations(Vec<(Arc<dyn Status>, Box<dyn Conversation>)>);

impl Conversations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has one of these answer a request: that of a name, or the only one of a type.
    pub fn answer(&mut self, all: &[Addressee], name: Option<&str>, kind: Option<&str>, request: Value) -> Reply {
        // Those that a reload has replaced are not there any more, and what was prepared with them has ended.
        self.0.retain(|(known, _)| all.iter().any(|one| Arc::ptr_eq(&one.status, known)));
        let answered = find(all, name, kind).and_then(|found| {
            let place = self.0.iter().position(|(known, _)| Arc::ptr_eq(known, &found.status));
            let place = match place {
                Some(place) => place,
                None => {
                    let begun = Arc::clone(&found.status).converse().ok_or_else(|| {
                        let what = if found.is_object { "object" } else { "app" };
                        let message = format!(
                            "the {what} `{}` is of type `{}`, which answers no requests",
                            found.name, found.kind
                        );
                        RequestError::mistake(message)
                    })?;
                    self.0.push((Arc::clone(&found.status), begun));
                    self.0.len() - 1
                }
            };
            let conversation = &mut self.0[place].1;
            let answer = catch_unwind(AssertUnwindSafe(|| conversation.answer(request)))
                .unwrap_or_else(|_| Err(RequestError::failure(format!("`{}` panicked; this is a bug", found.name))))?;
            Ok(Reply::Answer { name: found.name.clone(), answer })
        });
        answered.unwrap_or_else(|error| {
            let message = format!("error: {}", error.message);
            let message = if error.is_mistake { message } else { error.message };
            Reply::Refused { mistake: error.is_mistake, message }
        })
    }
}

/// The one that a client means. A compound app's name also means its only part of the type.
fn find<'a>(all: &'a [Addressee], name: Option<&str>, kind: Option<&str>) -> Result<&'a Addressee, RequestError> {
    let of_kind: Vec<&Addressee> = all.iter().filter(|one| kind.is_none_or(|kind| kind == one.kind)).collect();
    let names = || of_kind.iter().map(|one| &*one.name);
    let list = || names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let noun = kind
        .map_or_else(|| "app or object that answers requests".to_owned(), |kind| format!("object of type `{kind}`"));
    let Some(name) = name else {
        return match *of_kind {
            [only] => Ok(only),
            [] => Err(RequestError::mistake(format!("the network has no {noun}"))),
            _ => Err(RequestError::mistake(format!("the network has several: name one of {}", list()))),
        };
    };
    if let Some(found) = of_kind.iter().find(|one| one.name == name) {
        return Ok(found);
    }
    let parts: Vec<&&Addressee> =
        of_kind.iter().filter(|one| one.name.rsplit_once('/').is_some_and(|(compound, _)| compound == name)).collect();
    if let [only] = *parts {
        return Ok(only);
    }
    let help = match nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if of_kind.is_empty() => format!("the network has no {noun}"),
        None => format!("there are {}", list()),
    };
    Err(RequestError::mistake(format!("there is no {noun} named `{name}`; {help}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Silent;

    impl Status for Silent {
        fn status(&self) -> Value {
            Value::Null
        }
    }

    /// Counts the requests of each conversation, and panics if it is told to.
    struct Counting;

    struct Count(u32);

    impl Status for Counting {
        fn status(&self) -> Value {
            Value::Null
        }

        fn converse(self: Arc<Self>) -> Option<Box<dyn Conversation>> {
            Some(Box::new(Count(0)))
        }
    }

    impl Conversation for Count {
        fn answer(&mut self, request: Value) -> Result<Value, RequestError> {
            assert_ne!(request, json!("panic"));
            self.0 += 1;
            Ok(json!(self.0))
        }
    }

    fn addressee(name: &str, kind: &str, status: Arc<dyn Status>) -> Addressee {
        Addressee { name: name.to_owned(), kind: kind.to_owned(), is_object: true, status }
    }

    fn refusal(reply: Reply) -> String {
        match reply {
            Reply::Refused { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_conversation_lasts_until_a_reload_replaces_the_other_side() {
        let mut client = Conversations::default();
        let mut all =
            vec![addressee("router/vrf", "vrf", Arc::new(Counting)), addressee("macs", "table", Arc::new(Silent))];
        for (name, count) in [(None, 1), (Some("router/vrf"), 2), (Some("router"), 3)] {
            let answer = Reply::Answer { name: "router/vrf".to_owned(), answer: json!(count) };
            assert_eq!(client.answer(&all, name, Some("vrf"), json!({})), answer);
        }
        all[0] = addressee("router/vrf", "vrf", Arc::new(Counting));
        let answer = Reply::Answer { name: "router/vrf".to_owned(), answer: json!(1) };
        assert_eq!(client.answer(&all, Some("router/vrf"), None, json!({})), answer);
    }

    #[test]
    fn whoever_is_not_there_or_does_not_answer_is_named() {
        let mut client = Conversations::default();
        let vrf = |name| addressee(name, "vrf", Arc::new(Counting));
        let all = [vrf("a/vrf"), vrf("b/vrf"), addressee("macs", "table", Arc::new(Silent))];
        for (name, kind, said) in [
            (None, Some("vrf"), "name one of `a/vrf`, `b/vrf`"),
            (None, Some("door"), "the network has no object of type `door`"),
            (Some("c/vrf"), Some("vrf"), "did you mean"),
            (Some("macs"), Some("vrf"), "there is no object of type `vrf` named `macs`; there are `a/vrf`, `b/vrf`"),
            (Some("macs"), None, "the object `macs` is of type `table`, which answers no requests"),
        ] {
            let message = refusal(client.answer(&all, name, kind, json!({})));
            assert!(message.contains(said), "{message}");
        }
        let message = refusal(client.answer(&all, Some("a"), Some("vrf"), json!("panic")));
        assert_eq!(message, "`a/vrf` panicked; this is a bug");
    }
}
