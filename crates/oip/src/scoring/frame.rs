//! A frame, row by row, into the inputs of a model.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::Metadata;

use super::grow::{Cell, Growing};
use super::{Form, Scheme, Scored};
use crate::error::Of;
use crate::message::Limits;

/// Where the cells of a row go.
#[derive(Debug)]
pub(super) struct Frame<'m> {
    inputs: Vec<Growing<'m>>,
    /// For each place in a row as the model wants it, the column it comes from.
    sources: Vec<usize>,
    names: Vec<String>,
    rows: usize,
    /// All columns belong to one input.
    matrix: bool,
}

impl<'m> Frame<'m> {
    /// A frame with these columns. With one input the model gets all of them, or those the
    /// signature names; with several, each gets the column of its name.
    pub(super) fn new(names: Vec<String>, scheme: Scheme<'m>) -> Result<Self> {
        each_once(&names)?;
        let inputs: Vec<_> = scheme.metadata.inputs.iter().map(Growing::new).collect();
        let sources = match inputs.len() {
            1 if scheme.columns.is_empty() => (0..names.len()).collect(),
            1 => places(&names, scheme.columns.iter().map(String::as_str))?,
            _ => places(&names, inputs.iter().map(|input| input.info().name.as_str()))?,
        };
        let matrix = inputs.len() == 1 && sources.len() != 1;
        Ok(Self { inputs, sources, names, rows: 0, matrix })
    }

    /// Columns that are inputs by their names, even if there is one only.
    pub(super) fn by_name(names: Vec<String>, metadata: &'m Metadata) -> Result<Self> {
        each_once(&names)?;
        let inputs: Vec<_> = metadata.inputs.iter().map(Growing::new).collect();
        let wanted: Vec<&str> = inputs.iter().map(|input| input.info().name.as_str()).collect();
        if let Some(unknown) = names.iter().find(|name| !wanted.contains(&name.as_str())) {
            return Err(Error::invalid("inputs", unknown, wanted.join(", ")));
        }
        let sources = places(&names, wanted.into_iter())?;
        Ok(Self { inputs, sources, names, rows: 0, matrix: false })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds a row; `cell` gives the value in a column.
    pub(super) fn row<'a>(
        &mut self,
        body: &Bytes,
        limits: &Limits,
        cell: impl Fn(usize) -> Cell<'a>,
    ) -> Result<()> {
        let (names, row) = (&self.names, self.rows);
        let at = |source: usize| format!("{}[{row}]", Of("columns", &names[source]));
        for (place, &source) in self.sources.iter().enumerate() {
            if self.matrix {
                self.inputs[0].scalar(cell(source), body, &|| at(source))?;
            } else {
                self.inputs[place].cell(cell(source), body, limits, &|| at(source))?;
            }
        }
        self.inputs.iter().try_for_each(|input| input.within(limits))?;
        self.rows += 1;
        Ok(())
    }

    pub(super) fn finish(self, form: Form) -> Result<Scored> {
        let (rows, columns, matrix) = (self.rows, self.sources.len(), self.matrix);
        let tensor = |input: Growing<'_>| {
            if matrix { input.matrix(rows, columns) } else { input.column(rows) }
        };
        let inputs = self.inputs.into_iter().map(tensor).collect::<Result<_>>()?;
        Ok(Scored { inputs, form })
    }
}

fn each_once(names: &[String]) -> Result<()> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid("columns", pair[0], "each column once")),
        None => Ok(()),
    }
}

/// Where among the columns of the frame each of those wanted stands.
fn places<'a>(names: &[String], wanted: impl Iterator<Item = &'a str>) -> Result<Vec<usize>> {
    let place = |wanted: &str| {
        names.iter().position(|name| name == wanted).ok_or_else(|| {
            let mut known: String = names.join(", ").chars().take(200).collect();
            if known.is_empty() {
                known.push_str("none");
            }
            Error::invalid("columns", known, format!("a column {wanted:?} among them"))
        })
    };
    wanted.map(place).collect()
}
