//! Answering: each field at the top is a question, asked like a request of the REST protocol.

use std::collections::HashMap;

use falaj_base::ErrorKind;
use falaj_mlflow::Call;
use falaj_registry::version::ask_versions;
use falaj_tracking::ask::{Question, ask};
use serde_json::{Map, Value, json};

use crate::Questions;
use crate::document::{Field, Operation, Refusal};
use crate::project::{Projection, check, put};
use crate::schema::{self, Link, Type};

/// How many times something is looked up for members of lists, in one request.
const MAX_LINKS: usize = 1000;

/// How large the data of one reply is, as JSON.
const MAX_REPLY: usize = 64 << 20;

/// What was found, and what went wrong on the way.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) data: Map<String, Value>,
    pub(crate) errors: Vec<String>,
}

/// Who answers a question.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Tracking(Question),
    Versions,
    /// Answers with what it is given: for those who try out the way here.
    Echo,
}

/// The questions that there are. Two of them are called mutations in MLflow, though they change
/// nothing; a search of runs is both.
fn question(operation: Operation, name: &str) -> Option<(Asked, &'static Type)> {
    use Operation::{Mutation, Query};
    Some(match (operation, name) {
        (Query, "mlflowGetExperiment") => {
            (Asked::Tracking(Question::Experiment), &schema::GET_EXPERIMENT)
        }
        (Query, "mlflowGetRun") => (Asked::Tracking(Question::Run), &schema::GET_RUN),
        (Query, "mlflowListArtifacts") => {
            (Asked::Tracking(Question::Artifacts), &schema::LIST_ARTIFACTS)
        }
        (Query, "mlflowGetMetricHistoryBulkInterval") => {
            (Asked::Tracking(Question::Histories), &schema::HISTORIES)
        }
        (Query, "mlflowSearchModelVersions") => (Asked::Versions, &schema::SEARCH_VERSIONS),
        (Query | Mutation, "mlflowSearchRuns") => {
            (Asked::Tracking(Question::Runs), &schema::SEARCH_RUNS)
        }
        (Mutation, "mlflowSearchDatasets") => {
            (Asked::Tracking(Question::Datasets), &schema::SEARCH_DATASETS)
        }
        (Query, "test") | (Mutation, "testMutation") => (Asked::Echo, &schema::TEST),
        _ => return None,
    })
}

impl Questions {
    /// Asks everything, one after the other. A question that fails is told, and the others go on.
    pub(crate) async fn answer(
        &self,
        call: &Call,
        operation: Operation,
        fields: &[Field],
    ) -> Result<Answer, Refusal> {
        let named = match operation {
            Operation::Query => "Query",
            Operation::Mutation => "Mutation",
        };
        // What cannot be asked is found before anything is.
        for field in fields.iter().filter(|field| field.name != "__typename") {
            let (_, of) = question(operation, &field.name)
                .ok_or_else(|| format!("Cannot query field '{}' on type '{named}'.", field.name))?;
            check(of, &field.fields)?;
            if field.fields.is_empty() {
                return Err(format!("Field '{}' must have a selection of subfields.", field.name));
            }
        }
        let mut answer = Answer::default();
        let (mut links, mut room) = (MAX_LINKS, MAX_REPLY);
        for field in fields {
            let found = match question(operation, &field.name) {
                Some((asked, of)) => self.one(call, field, asked, of, &mut links).await,
                None => Ok(Value::from(named)),
            };
            let found = found.and_then(|found| match room.checked_sub(size(&found)) {
                Some(left) => {
                    room = left;
                    Ok(found)
                }
                None => Err(format!("the reply has more than {MAX_REPLY} bytes; ask for less")),
            });
            let found = found.unwrap_or_else(|why| {
                answer.errors.push(why);
                Value::Null
            });
            answer.data.insert(field.key.clone(), found);
        }
        Ok(answer)
    }

    async fn one(
        &self,
        call: &Call,
        field: &Field,
        asked: Asked,
        of: &'static Type,
        links: &mut usize,
    ) -> Result<Value, Refusal> {
        if let Asked::Echo = asked {
            let said = json!({ "output": field.arguments.get("inputString") });
            return Ok(Projection::default().object(of, &field.fields, &said));
        }
        if let Some(other) = field.arguments.keys().find(|name| *name != "input") {
            return Err(format!("Unknown argument '{other}' on field '{}'.", field.name));
        }
        let input = field.arguments.get("input").cloned().unwrap_or_else(|| json!({}));
        let reply = match asked {
            Asked::Tracking(question) => self.tracking(call, question, &input).await?,
            Asked::Versions | Asked::Echo => self.versions(call, &input).await?,
        };
        let mut projection = Projection::default();
        let mut found = projection.object(of, &field.fields, &reply);
        drop(reply);
        let mut experiments: HashMap<String, Value> = HashMap::new();
        for missing in projection.missing {
            let (link, fields) = (missing.link, missing.field.fields.as_slice());
            let id = |key: &str| missing.of.get(key).and_then(Value::as_str).unwrap_or_default();
            let experiment = id("experiment_id").to_owned();
            let known = experiments.get(&experiment).filter(|_| link == Link::ExperimentOfRun);
            let linked = if let Some(known) = known {
                known.clone()
            } else {
                *links = links.checked_sub(1).ok_or_else(|| {
                    format!("more than {MAX_LINKS} lookups for members of lists; ask for fewer")
                })?;
                match link {
                    Link::ExperimentOfRun => {
                        let input = json!({ "experiment_id": experiment });
                        let reply = self.tracking(call, Question::Experiment, &input).await?;
                        let reply = reply.get("experiment").cloned().unwrap_or_default();
                        experiments.insert(experiment, reply.clone());
                        reply
                    }
                    Link::VersionsOfRun => {
                        let filter = format!("run_id='{}'", id("run_id"));
                        let reply = self.versions(call, &json!({ "filter": filter })).await?;
                        reply.get("model_versions").cloned().unwrap_or_else(|| json!([]))
                    }
                }
            };
            let one = |of| Projection::default().object(link.leads_to(), fields, of);
            let shown = match linked.as_array() {
                Some(all) => all.iter().map(one).collect(),
                None => one(&linked),
            };
            put(&mut found, &missing.place, shown);
        }
        Ok(found)
    }

    async fn tracking(
        &self,
        call: &Call,
        question: Question,
        input: &Value,
    ) -> Result<Value, Refusal> {
        let input = input.to_string();
        ask(self.registry.tracking(), call, question, input.as_bytes()).await.map_err(told)
    }

    async fn versions(&self, call: &Call, input: &Value) -> Result<Value, Refusal> {
        let input = input.to_string();
        ask_versions(&self.registry, call, input.as_bytes()).await.map_err(told)
    }
}

/// An error in a sentence. What is our own fault is not the caller's business.
fn told(error: falaj_base::Error) -> Refusal {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(code = error.code().id, "{}", error.chain());
        return "the server failed".to_owned();
    }
    error.message().to_owned()
}

/// How large a value is as JSON, roughly.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(name, member)| name.len() + size(member) + 4).sum::<usize>()
        }
    }
}
