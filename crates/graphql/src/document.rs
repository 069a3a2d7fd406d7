//! Reading a document: which operation is meant, and which fields it asks for, with fragments in
//! their places and variables by their values.

use std::cell::Cell;
use std::collections::HashMap;

use apollo_parser::{Parser, cst};
use serde_json::{Map, Value};

/// The longest document, in bytes.
const MAX_TEXT: usize = 100_000;
/// The most tokens of one document.
const MAX_TOKENS: usize = 20_000;
/// How deep anything nests while it is read; what is too deep for an answer is told by that.
const MAX_NESTING: usize = 100;
/// How deep fields nest, how many there are, how many at the top, and how many of a level have
/// another name: as in MLflow.
const MAX_DEPTH: usize = 10;
const MAX_FIELDS: usize = 1000;
const MAX_ROOTS: usize = 10;
const MAX_ALIASES: usize = 10;
/// How many bytes variables may come to, counted at every place where they are filled in.
const MAX_FILLED: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Query,
    Mutation,
}

/// What is asked of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    /// What the answer is called.
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
    /// Of an object; nothing of a plain value.
    pub(crate) fields: Vec<Field>,
}

/// Why a document is not answered, in a sentence for its author.
pub(crate) type Refusal = String;

/// Reads the operation of this name; the only one, if none is named.
pub(crate) fn read(
    text: &str,
    name: Option<&str>,
    variables: &Map<String, Value>,
) -> Result<(Operation, Vec<Field>), Refusal> {
    if text.len() > MAX_TEXT {
        return Err(format!("the query has more than {MAX_TEXT} bytes"));
    }
    let tree = Parser::new(text).recursion_limit(MAX_NESTING).token_limit(MAX_TOKENS).parse();
    if let Some(error) = tree.errors().next() {
        return Err(format!("Syntax Error: {}", error.message()));
    }
    let (mut operations, mut fragments) = (Vec::new(), HashMap::new());
    for definition in tree.document().definitions() {
        match definition {
            cst::Definition::OperationDefinition(operation) => operations.push(operation),
            cst::Definition::FragmentDefinition(fragment) => {
                let name = fragment.fragment_name().and_then(|name| text_of(name.name()));
                fragments.insert(name.unwrap_or_default(), fragment);
            }
            other => return Err(format!("a query has no {}", other.kind())),
        }
    }
    let operation = match (name.filter(|name| !name.is_empty()), operations.as_slice()) {
        (None, [only]) => only,
        (None, []) => return Err("Must provide an operation.".to_owned()),
        (None, _) => {
            return Err(
                "Must provide operation name if query contains multiple operations.".to_owned()
            );
        }
        (Some(name), all) => {
            let mut named = all.iter();
            named
                .find(|one| text_of(one.name()).as_deref() == Some(name))
                .ok_or_else(|| format!("Unknown operation named '{name}'."))?
        }
    };
    let kind = match operation.operation_type() {
        Some(kind) if kind.subscription_token().is_some() => {
            return Err("there are no subscriptions here".to_owned());
        }
        Some(kind) if kind.mutation_token().is_some() => Operation::Mutation,
        _ => Operation::Query,
    };
    let variables = given(operation, variables)?;
    let filling = Filling::new(&variables);
    let mut reader = Reader { fragments: &fragments, variables: &filling, fields: 0 };
    let fields = match operation.selection_set() {
        Some(set) => reader.fields(&set, 1, &[])?,
        None => Vec::new(),
    };
    Ok((kind, fields))
}

/// The values of the variables that the operation declares.
fn given(
    operation: &cst::OperationDefinition,
    sent: &Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let mut all = Map::new();
    let Some(declared) = operation.variable_definitions() else { return Ok(all) };
    for one in declared.variable_definitions() {
        let name = text_of(one.variable().and_then(|variable| variable.name())).unwrap_or_default();
        let value = match sent.get(&name) {
            Some(value) => Some(value.clone()),
            None => match one.default_value().and_then(|default| default.value()) {
                Some(default) => Some(plain(&default, &Filling::new(&Map::new()))?),
                None => None,
            },
        };
        if let Some(value) = value {
            all.insert(name, value);
        }
    }
    Ok(all)
}

fn text_of(name: Option<cst::Name>) -> Option<String> {
    name.map(|name| name.text().to_string())
}

/// Variables, and how much of them was filled in so far: one that is named often is copied often.
struct Filling<'v> {
    variables: &'v Map<String, Value>,
    filled: Cell<usize>,
}

impl<'v> Filling<'v> {
    fn new(variables: &'v Map<String, Value>) -> Self {
        Self { variables, filled: Cell::new(0) }
    }

    fn fill(&self, name: &str) -> Result<Value, Refusal> {
        let Some(value) = self.variables.get(name) else { return Ok(Value::Null) };
        let filled = self.filled.get().saturating_add(weight(value));
        self.filled.set(filled);
        if filled > MAX_FILLED {
            return Err(format!(
                "variables come to more than {MAX_FILLED} bytes where they are used"
            ));
        }
        Ok(value.clone())
    }
}

/// About how many bytes a copy takes.
fn weight(value: &Value) -> usize {
    const ONE: usize = 32;
    match value {
        Value::String(text) => ONE + text.len(),
        Value::Array(all) => ONE + all.iter().map(weight).sum::<usize>(),
        Value::Object(all) => {
            ONE + all.iter().map(|(key, value)| ONE + key.len() + weight(value)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => ONE,
    }
}

struct Reader<'d> {
    fragments: &'d HashMap<String, cst::FragmentDefinition>,
    variables: &'d Filling<'d>,
    /// How many there were so far, uses of fragments among them.
    fields: usize,
}

/// A field, and the fragments that it stands in.
type Found = (cst::Field, Vec<String>);

impl Reader<'_> {
    /// The fields of one level. What fragments add to it counts like what stands there.
    fn fields(
        &mut self,
        set: &cst::SelectionSet,
        depth: usize,
        inside: &[String],
    ) -> Result<Vec<Field>, Refusal> {
        if depth > MAX_DEPTH {
            return Err(format!("Query exceeds maximum depth of {MAX_DEPTH}"));
        }
        let mut found = Vec::new();
        self.collect(set, &mut found, inside)?;
        let aliases = found.iter().filter(|(field, _)| field.alias().is_some()).count();
        if depth == 1 && found.len() > MAX_ROOTS {
            let count = found.len();
            return Err(format!(
                "GraphQL queries should have at most {MAX_ROOTS} root fields, got {count} root \
                 fields."
            ));
        }
        if aliases > MAX_ALIASES {
            return Err(format!(
                "GraphQL queries should have at most {MAX_ALIASES} aliases, got {aliases} aliases."
            ));
        }
        let mut all: Vec<Field> = Vec::with_capacity(found.len());
        for (field, inside) in &found {
            let name = text_of(field.name()).unwrap_or_default();
            let key = field.alias().and_then(|alias| text_of(alias.name()));
            let fields = match field.selection_set() {
                Some(set) => self.fields(&set, depth + 1, inside)?,
                None => Vec::new(),
            };
            let field = Field {
                key: key.unwrap_or_else(|| name.clone()),
                name,
                arguments: self.arguments(field.arguments())?,
                fields,
            };
            merge(&mut all, field)?;
        }
        Ok(all)
    }

    /// The fields that stand in a set, and in the fragments that it uses.
    fn collect(
        &mut self,
        set: &cst::SelectionSet,
        to: &mut Vec<Found>,
        inside: &[String],
    ) -> Result<(), Refusal> {
        for selection in set.selections() {
            self.fields += 1;
            if self.fields > MAX_FIELDS {
                return Err(format!("Query exceeds maximum total selections of {MAX_FIELDS}"));
            }
            match selection {
                cst::Selection::Field(field) => {
                    if self.is_wanted(field.directives())? {
                        to.push((field, inside.to_vec()));
                    }
                }
                cst::Selection::InlineFragment(fragment) => {
                    if let Some(set) = fragment.selection_set()
                        && self.is_wanted(fragment.directives())?
                    {
                        self.collect(&set, to, inside)?;
                    }
                }
                cst::Selection::FragmentSpread(spread) => {
                    let name = spread.fragment_name().and_then(|name| text_of(name.name()));
                    let name = name.unwrap_or_default();
                    let fragment = self.fragments.get(&name);
                    let fragment = fragment.ok_or_else(|| format!("Unknown fragment '{name}'."))?;
                    if inside.contains(&name) {
                        return Err(format!("Cannot spread fragment '{name}' within itself."));
                    }
                    if let Some(set) = fragment.selection_set()
                        && self.is_wanted(spread.directives())?
                    {
                        let inside = [inside, &[name]].concat();
                        self.collect(&set, to, &inside)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What `@skip` and `@include` say.
    fn is_wanted(&self, directives: Option<cst::Directives>) -> Result<bool, Refusal> {
        let mut wanted = true;
        for directive in directives.iter().flat_map(cst::Directives::directives) {
            let name = text_of(directive.name()).unwrap_or_default();
            let condition = self.arguments(directive.arguments())?.remove("if");
            match (name.as_str(), condition) {
                ("skip", Some(Value::Bool(skipped))) => wanted &= !skipped,
                ("include", Some(Value::Bool(included))) => wanted &= included,
                ("skip" | "include", _) => {
                    return Err(format!("the directive @{name} needs `if`, true or false"));
                }
                _ => return Err(format!("Unknown directive '@{name}'.")),
            }
        }
        Ok(wanted)
    }

    fn arguments(&self, arguments: Option<cst::Arguments>) -> Result<Map<String, Value>, Refusal> {
        let mut all = Map::new();
        for argument in arguments.iter().flat_map(cst::Arguments::arguments) {
            let name = text_of(argument.name()).unwrap_or_default();
            let value = argument.value().map(|value| plain(&value, self.variables)).transpose()?;
            if all.insert(name.clone(), value.unwrap_or_default()).is_some() {
                return Err(format!("There can be only one argument named '{name}'."));
            }
        }
        Ok(all)
    }
}

/// Two questions of the same name are one.
fn merge(all: &mut Vec<Field>, field: Field) -> Result<(), Refusal> {
    let Some(known) = all.iter_mut().find(|known| known.key == field.key) else {
        all.push(field);
        return Ok(());
    };
    if known.name != field.name || known.arguments != field.arguments {
        return Err(format!("Fields '{}' conflict; use different aliases.", field.key));
    }
    field.fields.into_iter().try_for_each(|inner| merge(&mut known.fields, inner))
}

/// A value with its variables filled in. One that is not given is left out of its object.
fn plain(value: &cst::Value, variables: &Filling<'_>) -> Result<Value, Refusal> {
    Ok(match value {
        cst::Value::Variable(variable) => {
            let name = text_of(variable.name()).unwrap_or_default();
            variables.fill(&name)?
        }
        cst::Value::StringValue(text) => Value::String(text.into()),
        cst::Value::IntValue(number) => {
            let digits = number.int_token().map(|token| token.text().to_owned());
            number_of(&digits.unwrap_or_default())?
        }
        cst::Value::FloatValue(number) => {
            let digits = number.float_token().map(|token| token.text().to_owned());
            number_of(&digits.unwrap_or_default())?
        }
        cst::Value::BooleanValue(flag) => Value::Bool(flag.true_token().is_some()),
        cst::Value::NullValue(_) => Value::Null,
        cst::Value::EnumValue(word) => Value::String(text_of(word.name()).unwrap_or_default()),
        cst::Value::ListValue(list) => {
            list.values().map(|value| plain(&value, variables)).collect::<Result<_, _>>()?
        }
        cst::Value::ObjectValue(object) => {
            let mut all = Map::new();
            for field in object.object_fields() {
                let name = text_of(field.name()).unwrap_or_default();
                let value = field.value().map(|value| plain(&value, variables)).transpose()?;
                let value = value.unwrap_or_default();
                if !value.is_null() && all.insert(name.clone(), value).is_some() {
                    return Err(format!("There can be only one input field named '{name}'."));
                }
            }
            Value::Object(all)
        }
    })
}

fn number_of(digits: &str) -> Result<Value, Refusal> {
    let shown: String = digits.chars().take(40).collect();
    serde_json::from_str(digits).map_err(|_| format!("{shown} is no number"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Vec<Field>, Refusal> {
        read(text, None, &Map::new()).map(|(_, fields)| fields)
    }

    fn names(fields: &[Field]) -> Vec<String> {
        let one = |field: &Field| match field.fields.as_slice() {
            [] => field.key.clone(),
            inner => format!("{}({})", field.key, names(inner).join(" ")),
        };
        fields.iter().map(one).collect()
    }

    #[test]
    fn a_variable_that_is_named_often_is_not_copied_for_ever() {
        let variables = json!({ "v": "x".repeat(1 << 20) });
        let uses =
            |count: usize| format!("query($v:String){{f(a:[{}]){{b}}}}", "$v,".repeat(count));
        let read = |count| read(&uses(count), None, variables.as_object().unwrap());
        assert!(read(3).is_ok());
        assert!(read(5).unwrap_err().contains("variables come to more than"));
    }

    #[test]
    fn fields_and_values() {
        let variables = json!({"id": "7", "none": null});
        let text = r#"query q($id: String!, $n: Int = 5, $gone: Int) @component(name: "T") {
            one: get(input: {runId: $id, max: $n, left: $gone, kind: ACTIVE, list: ["a", 1.5, true]}) {
                run { info { status } }
            }
        }"#;
        let (kind, fields) = read(text, Some("q"), variables.as_object().unwrap()).unwrap();
        assert_eq!(kind, Operation::Query);
        assert_eq!(names(&fields), ["one(run(info(status)))"]);
        let input = json!({"runId": "7", "max": 5, "kind": "ACTIVE", "list": ["a", 1.5, true]});
        assert_eq!((fields[0].name.as_str(), &fields[0].arguments["input"]), ("get", &input));
    }

    #[test]
    fn fragments_stand_where_they_are_used() {
        let text = "query { a { ...f ... on T { z } } } fragment f on T { x y { ...g } }
                    fragment g on T { x }";
        assert_eq!(names(&parse(text).unwrap()), ["a(x y(x) z)"]);
        let both = "{ a { ...g b { ...g } } } fragment g on T { x }";
        assert_eq!(names(&parse(both).unwrap()), ["a(x b(x))"]);
        assert_eq!(names(&parse("{ a { x } a { y x } }").unwrap()), ["a(x y)"]);
        let skipped = "{ a @skip(if: true) b @include(if: true) c @include(if: false) }";
        assert_eq!(names(&parse(skipped).unwrap()), ["b"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, why) in [
            ("", "Syntax Error"),
            ("fragment f on T { x }", "Must provide an operation"),
            ("{", "Syntax Error"),
            ("query a { x } query b { y }", "operation name"),
            ("subscription { x }", "subscriptions"),
            ("type T { x: Int }", "ObjectTypeDefinition"),
            ("{ ...f }", "Unknown fragment"),
            ("{ a { ...f } } fragment f on T { b { ...f } x }", "within itself"),
            ("{ ...f } fragment f on T { ...g } fragment g on T { ...f }", "within itself"),
            ("{ a @later }", "Unknown directive"),
            ("{ a @skip }", "needs `if`"),
            ("{ a(x: 1, x: 2) }", "only one argument"),
            ("{ a: b a: c }", "conflict"),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
        assert!(read("query a { x }", Some("b"), &Map::new()).is_err());
    }

    fn repeated(count: usize, part: impl Fn(usize) -> String) -> String {
        (0..count).map(part).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn everything_is_bounded() {
        let roots = repeated(11, |n| format!("f{n}"));
        let aliases = repeated(11, |n| format!("a{n}: x"));
        let many = repeated(1001, |n| format!("f{n}"));
        let deep = format!("{}x{}", "{ a ".repeat(11), " }".repeat(11));
        let deeper = format!("{}x{}", "{ a ".repeat(10_000), " }".repeat(10_000));
        let list = format!("{{ a(x: {}1{}) }}", "[".repeat(5000), "]".repeat(5000));
        // Each fragment holds the next one twice: without a count, 2^40 fields.
        let twice = repeated(40, |n| {
            let next = n + 1;
            format!("fragment f{n} on T {{ a {{ ...f{next} }} b {{ ...f{next} }} }}")
        });
        let twice = format!("{{ a {{ ...f0 }} }} {twice} fragment f40 on T {{ x }}");
        let empty = repeated(40, |n| {
            let next = n + 1;
            format!("fragment f{n} on T {{ ...f{next} ...f{next} }}")
        });
        let empty = format!("{{ ...f0 }} {empty} fragment f40 on T {{ x @skip(if: true) }}");
        for (text, why) in [
            (format!("{{ {roots} }}"), "at most 10 root fields"),
            (format!("{{ a {{ {aliases} }} }}"), "at most 10 aliases"),
            (format!("{{ a {{ {many} }} }}"), "maximum total selections of 1000"),
            (deep, "maximum depth of 10"),
            (deeper, ""),
            (list, ""),
            (twice, "maximum"),
            (empty, "maximum total selections"),
            ("x".repeat(MAX_TEXT + 1), "bytes"),
            (format!("{{ a {} }}", "\u{feff},".repeat(MAX_TOKENS)), ""),
        ] {
            let refusal = parse(&text).unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_mixture_of_words_is_read_or_refused(
            words in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "(", ")", ":", "query", "fragment", "on", "...", "f", "$v", "@skip", "if",
                "\"\\u0041\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "\"\\u{110000}\"", "\"\\u{41}\"",
                "\"\"\"b\"\"\"", "1", "-0.5e3", "true", "null", "[", "]", "=", "!", ",", "#c\n",
            ]), 0..40)
        ) {
            let _ = parse(&words.join(" "));
        }
    }
}
