//! A frame, row by row, into the inputs of a model.

use std::collections::HashMap;

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
    names: Names,
    rows: usize,
    /// All columns belong to one input.
    matrix: bool,
}

impl<'m> Frame<'m> {
    /// A frame with these columns. With one input the model gets all of them, or those the
    /// signature names; with several, each gets the column of its name.
    pub(super) fn new(names: Vec<String>, scheme: Scheme<'m>) -> Result<Self> {
        let names = Names::new(names)?;
        let inputs: Vec<_> = scheme.metadata.inputs.iter().map(Growing::new).collect();
        let sources = match inputs.len() {
            1 if scheme.columns.is_empty() => (0..names.all.len()).collect(),
            1 => names.places(scheme.columns.iter().map(String::as_str))?,
            _ => names.places(inputs.iter().map(|input| input.info().name.as_str()))?,
        };
        let matrix = inputs.len() == 1 && sources.len() != 1;
        Ok(Self { inputs, sources, names, rows: 0, matrix })
    }

    /// Columns that are inputs by their names, even if there is one only.
    pub(super) fn by_name(names: Vec<String>, metadata: &'m Metadata) -> Result<Self> {
        let names = Names::new(names)?;
        let inputs: Vec<_> = metadata.inputs.iter().map(Growing::new).collect();
        let wanted = inputs.iter().map(|input| input.info().name.as_str());
        let sources = names.places(wanted.clone())?;
        // Every input has its column, so a column more is one that no input wants.
        if names.all.len() > sources.len() {
            let unknown = names.all.iter().find(|name| !wanted.clone().any(|known| known == *name));
            let known: Vec<&str> = wanted.collect();
            return Err(Error::invalid(
                "inputs",
                unknown.map_or("", String::as_str),
                known.join(", "),
            ));
        }
        Ok(Self { inputs, sources, names, rows: 0, matrix: false })
    }

    /// How many columns there are.
    pub(super) fn width(&self) -> usize {
        self.names.all.len()
    }

    /// The column of this name, which is probably the one at `likely`.
    pub(super) fn column(&self, name: &str, likely: usize) -> Option<usize> {
        let expected = self.names.all.get(likely).is_some_and(|known| known == name);
        if expected { Some(likely) } else { self.names.place(name) }
    }

    /// Adds a row; `cell` gives the value in a column.
    pub(super) fn row<'a>(
        &mut self,
        body: &Bytes,
        limits: &Limits,
        cell: impl Fn(usize) -> Cell<'a>,
    ) -> Result<()> {
        let (names, row) = (&self.names, self.rows);
        let at = |source: usize| format!("{}[{row}]", Of("columns", &names.all[source]));
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

/// From this many columns on they are found by a map: looking through them for each cell of each
/// row would take the square of their number.
const MANY: usize = 32;

/// The names of columns, each once.
#[derive(Debug)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn new(all: Vec<String>) -> Result<Self> {
        let mut places = HashMap::new();
        if all.len() >= MANY {
            let numbered = all.iter().enumerate().map(|(place, name)| (name.clone(), place));
            places = numbered.rev().collect();
        }
        let names = Self { all, places };
        let mut numbered = names.all.iter().enumerate();
        match numbered.find(|&(place, name)| names.place(name) != Some(place)) {
            Some((_, name)) => Err(Error::invalid("columns", name, "each column once")),
            None => Ok(names),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        match self.all.len() {
            MANY.. => self.places.get(name).copied(),
            _ => self.all.iter().position(|known| known == name),
        }
    }

    /// Where each of those wanted stands.
    fn places<'a>(&self, wanted: impl Iterator<Item = &'a str>) -> Result<Vec<usize>> {
        let place = |wanted: &str| {
            self.place(wanted).ok_or_else(|| {
                let shown: Vec<&str> = self.all.iter().take(20).map(String::as_str).collect();
                let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
                Error::invalid("columns", shown, format!("a column {wanted:?} among them"))
            })
        };
        wanted.map(place).collect()
    }
}
