//! A network file's values with their places, and their serde deserializer.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

/// A place in the text: bytes `start..end` of one of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Place {
    fn shifted(self, offset: usize) -> Place {
        Place { start: self.start + offset, end: self.end + offset, ..self }
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
    /// The text of an untyped value, from a variable or the command line. It is read as the type of its key.
    pub(crate) untyped: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    /// An integer beyond the range of `i64`.
    Large(u64),
    Float(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Table),
    /// A type that no key has, such as a date: its name in messages, and its text.
    Other(&'static str, String),
    /// An unknown value, after an error that has been reported.
    Broken,
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(pub(crate) Vec<(Key, Node)>);

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) place: Place,
}

impl Table {
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.entry(name).map(|(_, node)| node)
    }

    /// The table that is the value of a key, whose levels are joined by dots.
    pub(crate) fn table_at(&self, path: &str) -> Option<&Table> {
        path.split('.').try_fold(self, |level, name| match &level.get(name)?.value {
            Value::Table(inner) => Some(inner),
            _ => None,
        })
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&(Key, Node)> {
        self.0.iter().find(|(key, _)| key.name == name)
    }

    /// The table with all places moved by `offset`.
    pub(crate) fn shifted(mut self, offset: usize) -> Table {
        for (key, node) in &mut self.0 {
            key.place = key.place.shifted(offset);
            node.shift(offset);
        }
        self
    }

    /// Removes the value to which these steps lead, or the innermost one on the way that there is. Returns how many steps
    /// lead to it; 0 if there is nothing.
    pub(crate) fn remove_at(&mut self, path: &[String]) -> usize {
        let [name, rest @ ..] = path else { return 0 };
        let Some(index) = self.0.iter().position(|(key, _)| key.name == *name) else { return 0 };
        match self.0[index].1.remove_at(rest) {
            0 => {
                self.0.remove(index);
                1
            }
            length => 1 + length,
        }
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<(Key, Node)> {
        let index = self.0.iter().position(|(key, _)| key.name == name)?;
        Some(self.0.remove(index))
    }
}

impl Table {
    /// Values that are written in another table get the places that they have there.
    pub(crate) fn adopt_places(&mut self, written: &Table) {
        for (key, node) in &mut self.0 {
            if let Some((written_key, written)) = written.entry(&key.name)
                && node.adopt_place(written)
            {
                key.place = written_key.place;
            }
        }
    }
}

impl Table {
    /// Items of the lists in here that are written elsewhere get the places that they have there.
    pub(crate) fn adopt_items(&mut self, written: &[Node]) {
        for (_, node) in &mut self.0 {
            let Value::List(own) = &mut node.value else { continue };
            for item in own {
                if let Some(written) = written.iter().find(|written| item.is_made_of(written)) {
                    item.adopt_place(written);
                }
            }
        }
    }
}

impl Node {
    /// Removes a value within this one, as [`Table::remove_at`] does.
    fn remove_at(&mut self, path: &[String]) -> usize {
        match (&mut self.value, path) {
            (Value::Table(table), _) => table.remove_at(path),
            (Value::List(items), [step, rest @ ..]) => {
                let Some(index) = step.parse().ok().filter(|&index: &usize| index < items.len()) else { return 0 };
                match items[index].remove_at(rest) {
                    0 => {
                        items.remove(index);
                        1
                    }
                    length => 1 + length,
                }
            }
            _ => 0,
        }
    }

    /// Whether it is a written value, perhaps with more keys.
    fn is_made_of(&self, written: &Node) -> bool {
        match (&self.value, &written.value) {
            (Value::Table(own), Value::Table(written)) => {
                written.0.iter().all(|(key, node)| own.get(&key.name).is_some_and(|own| own.is_made_of(node)))
            }
            (Value::List(own), Value::List(written)) => {
                own.len() == written.len() && own.iter().zip(written).all(|(own, written)| own.is_made_of(written))
            }
            _ => self.clone().adopt_place(written),
        }
    }

    /// Takes over the places of a written value that is the same, as far as it is. Returns whether it is.
    fn adopt_place(&mut self, written: &Node) -> bool {
        let is_same = match (&mut self.value, &written.value) {
            (Value::Table(own), Value::Table(written)) => {
                own.adopt_places(written);
                true
            }
            (Value::List(own), Value::List(written)) if own.len() == written.len() => {
                for (own, written) in own.iter_mut().zip(written) {
                    own.adopt_place(written);
                }
                true
            }
            (Value::Text(own), Value::Text(written)) => own == written,
            (Value::Integer(own), Value::Integer(written)) => own == written,
            (Value::Large(own), Value::Large(written)) => own == written,
            (Value::Float(own), Value::Float(written)) => own.total_cmp(written).is_eq(),
            (Value::Boolean(own), Value::Boolean(written)) => own == written,
            _ => written.untyped.is_some(),
        };
        if is_same {
            self.place = written.place;
        }
        is_same
    }

    fn shift(&mut self, offset: usize) {
        self.place = self.place.shifted(offset);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.shift(offset)),
            Value::Table(table) => *table = std::mem::take(table).shifted(offset),
            _ => {}
        }
    }
}

impl Value {
    /// The type in messages.
    pub(crate) fn called(&self) -> &'static str {
        match self {
            Value::Text(_) => "text",
            Value::Integer(_) | Value::Large(_) => "an integer",
            Value::Float(_) => "a number with a fraction",
            Value::Boolean(_) => "a boolean",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(called, _) => called,
            Value::Broken => "unknown",
        }
    }
}

/// Converts a TOML value of one of the sources, with keys in written order.
pub(crate) fn node(value: DeValue<'_>, source: usize, span: std::ops::Range<usize>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => {
            if let Ok(small) = i64::from_str_radix(integer.as_str(), integer.radix()) {
                Value::Integer(small)
            } else if let Ok(large) = u64::from_str_radix(integer.as_str(), integer.radix()) {
                Value::Large(large)
            } else {
                Value::Other("an integer of more than 64 bits", integer.to_string())
            }
        }
        DeValue::Float(float) => match float.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other("a number", float.to_string()),
        },
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(datetime) => Value::Other("a date or time", datetime.to_string()),
        DeValue::Array(array) => Value::List(
            array
                .into_iter()
                .map(|item| {
                    let span = item.span();
                    node(item.into_inner(), source, span)
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(inner, source)),
    };
    Node { place: Place { source, start: span.start, end: span.end }, value, untyped: None }
}

/// Converts a value that a program made, which stands for the text at a place. TOML has no null: `None`.
pub(crate) fn of_json(value: &Json, place: Place) -> Option<Node> {
    let value = match value {
        Json::Null => return None,
        Json::Bool(boolean) => Value::Boolean(*boolean),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(small), _) => Value::Integer(small),
            (None, Some(large)) => Value::Large(large),
            (None, None) => Value::Float(number.as_f64()?),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::List(items.iter().filter_map(|item| of_json(item, place)).collect()),
        Json::Object(fields) => {
            let field =
                |(name, value): (&String, &Json)| Some((Key { name: name.clone(), place }, of_json(value, place)?));
            Value::Table(Table(fields.iter().filter_map(field).collect()))
        }
    };
    Some(Node { place, value, untyped: None })
}

/// Converts a TOML table of one of the sources.
pub(crate) fn table(table: DeTable<'_>, source: usize) -> Table {
    let mut entries: Vec<(Key, Node)> = table
        .into_iter()
        .map(|(key, value)| {
            let place = Place { source, start: key.span().start, end: key.span().end };
            let span = value.span();
            (Key { name: key.into_inner().into_owned(), place }, node(value.into_inner(), source, span))
        })
        .collect();
    entries.sort_by_key(|(key, _)| key.place);
    Table(entries)
}

/// Why and where a value does not fit a type.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) message: String,
    /// The innermost value that has a place.
    pub(crate) place: Option<Place>,
    /// The key of the outermost table that contains the value.
    pub(crate) key: Option<String>,
}

impl Error {
    fn at(mut self, place: Place) -> Error {
        self.place.get_or_insert(place);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Error {
        Error { message: message.to_string(), place: None, key: None }
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Large(number) => visitor.visit_u64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(boolean) => visitor.visit_bool(*boolean),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(table) => table.deserialize_any(visitor),
            Value::Broken => Err(de::Error::custom("its variables are unknown")),
            Value::Other(called, written) => {
                Err(de::Error::invalid_type(de::Unexpected::Other(&format!("{called} (`{written}`)")), &visitor))
            }
        }
        .map_err(|error: Error| error.at(self.place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(name) => visitor.visit_enum(Variant { name, content: None }),
            Value::Table(Table(entries)) => match entries.as_slice() {
                [(key, node)] => visitor.visit_enum(Variant { name: &key.name, content: Some(node) }),
                _ => Err(de::Error::custom("expected a table with one key, the name of the variant")),
            },
            _ => Err(de::Error::custom(format!("expected a name, found {}", self.value.called()))),
        }
        .map_err(|error: Error| error.at(self.place))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> Deserializer<'de> for &'de Table {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Entries { rest: self.0.iter(), node: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any option newtype_struct enum
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|node| seed.deserialize(node)).transpose()
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, (Key, Node)>,
    node: Option<(&'de Key, &'de Node)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, node)) = self.rest.next() else { return Ok(None) };
        self.node = Some((key, node));
        let name: StrDeserializer<'_, Error> = StrDeserializer::new(&key.name);
        let found = seed.deserialize(name).map_err(|error| within(error, key, key.place))?;
        Ok(Some(found))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.node.take() {
            Some((key, node)) => seed.deserialize(node).map_err(|error| within(error, key, node.place)),
            None => Err(de::Error::custom("a value without a key")),
        }
    }
}

fn within(error: Error, key: &Key, place: Place) -> Error {
    Error { key: Some(key.name.clone()), ..error.at(place) }
}

struct Variant<'de> {
    name: &'de str,
    content: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Variant<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Variant<'de>), Error> {
        let name: StrDeserializer<'_, Error> = StrDeserializer::new(self.name);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> Variant<'de> {
    fn content(&self) -> Result<&'de Node, Error> {
        self.content
            .ok_or_else(|| de::Error::custom(format!("`{0}` needs a value: write it as {{ {0} = … }}", self.name)))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(de::Error::custom(format!("`{0}` takes no value: write it as \"{0}\"", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.content()?.deserialize_any(visitor)
    }
}
