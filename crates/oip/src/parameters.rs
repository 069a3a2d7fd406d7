//! The parameters that have a meaning: taken out of what a request sends, checked, or refused.

use std::time::Duration;

use falaj_base::{Error, Result};

use crate::error::Of;
use crate::message::{Parameters, Request, Value, Wanted};

const SHARED_MEMORY: &[&str] =
    &["shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"];

/// Parameters of one object, being taken out by name.
struct Taken<'p> {
    from: &'p mut Parameters,
    field: String,
}

impl Taken<'_> {
    fn take(&mut self, name: &str) -> Option<Value> {
        let place = self.from.iter().position(|(known, _)| known == name)?;
        Some(self.from.remove(place).1)
    }

    fn whole(&mut self, name: &str) -> Result<Option<u64>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Int(value)) if value >= 0 => Ok(Some(value.unsigned_abs())),
            Some(other) => Err(self.wrong(name, &other, "a whole number of 0 or more")),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(name, &other, "true or false")),
        }
    }

    fn no_shared_memory(&self) -> Result<()> {
        let named = |name: &&&str| self.from.iter().any(|(known, _)| known == **name);
        let Some(name) = SHARED_MEMORY.iter().find(named) else { return Ok(()) };
        let allowed = "tensors inside the request: this server shares no memory with its clients";
        Err(Error::invalid(format!("{}.{name}", self.field), "given", allowed))
    }

    fn wrong(&self, name: &str, value: &Value, allowed: &str) -> Error {
        Error::invalid(format!("{}.{name}", self.field), shown(value), allowed)
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(value) => value.clone(),
    }
}

/// Those of the request.
pub(crate) fn of_request(request: &mut Request, mut parameters: Parameters) -> Result<()> {
    if parameters.is_empty() {
        return Ok(());
    }
    let mut taken = Taken { from: &mut parameters, field: "parameters".to_owned() };
    request.binary_output = taken.flag("binary_data_output")?.unwrap_or(false);
    request.timeout =
        taken.whole("timeout")?.filter(|&timeout| timeout > 0).map(Duration::from_micros);
    request.priority = taken.whole("priority")?.unwrap_or(0);
    let sequence = taken.take("sequence_id");
    for name in ["sequence_start", "sequence_end"] {
        taken.flag(name)?;
    }
    match sequence {
        None | Some(Value::Int(0)) => {}
        Some(Value::Text(id)) if id.is_empty() => {}
        Some(id) => {
            let allowed = "0 or none: models here keep no state between requests";
            return Err(taken.wrong("sequence_id", &id, allowed));
        }
    }
    request.parameters = parameters;
    Ok(())
}

/// The size of an input's raw bytes, if they follow the JSON.
pub(crate) fn of_input(name: &str, mut parameters: Parameters) -> Result<Option<usize>> {
    if parameters.is_empty() {
        return Ok(None);
    }
    let field = format!("{}.parameters", Of("inputs", name));
    let mut taken = Taken { from: &mut parameters, field };
    taken.no_shared_memory()?;
    let size = taken.whole("binary_data_size")?;
    Ok(size.map(|size| usize::try_from(size).unwrap_or(usize::MAX)))
}

pub(crate) fn of_output(wanted: &mut Wanted, mut parameters: Parameters) -> Result<()> {
    if parameters.is_empty() {
        return Ok(());
    }
    let field = format!("{}.parameters", Of("outputs", &wanted.name));
    let mut taken = Taken { from: &mut parameters, field };
    taken.no_shared_memory()?;
    wanted.binary = taken.flag("binary_data")?;
    let classes = taken.whole("classification")?.unwrap_or(0);
    wanted.classes = usize::try_from(classes).unwrap_or(usize::MAX);
    Ok(())
}
