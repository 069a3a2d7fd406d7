//! Views on demand in training sets: computed row by row from what was joined and from the moments.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Field;
use falaj_base::{Error, Result};

use super::demand::Demand;
use super::form::InputForm;
use crate::definition::form::{Pick, ViewForm};
use crate::name::FeatureName;
use crate::schema;
use crate::source::fit;
use crate::training::Chosen;

/// A view on demand's part of a training set.
#[derive(Debug)]
pub(crate) struct Derived {
    chosen: Chosen,
    view: Arc<ViewForm>,
    demand: Demand,
    /// For each input that is a feature: which of the joined views it is of, and which of its
    /// columns.
    places: Vec<Option<(usize, usize)>>,
}

impl Derived {
    /// Notes which features it needs in `needed`, view by view.
    pub(crate) fn new(chosen: Chosen, view: &ViewForm, needed: &mut Vec<Pick>) -> Result<Self> {
        let demand = view.demand()?;
        let mut places = Vec::with_capacity(demand.inputs.len());
        for input in &demand.inputs {
            let Some(feature) = &input.feature else {
                places.push(None);
                continue;
            };
            let same = |pick: &Pick| pick.hash == feature.hash;
            let side = needed.iter().position(same).unwrap_or_else(|| {
                needed.push(Pick {
                    view: feature.view.clone(),
                    version: feature.version,
                    hash: feature.hash.clone(),
                    features: Vec::new(),
                });
                needed.len() - 1
            });
            let features = &mut needed[side].features;
            let column = features.iter().position(|known| *known == feature.feature);
            let column = column.unwrap_or_else(|| {
                features.push(feature.feature.clone());
                features.len() - 1
            });
            places.push(Some((side, column)));
        }
        Ok(Self { chosen, view: Arc::new(view.clone()), demand, places })
    }

    /// The columns of the result.
    pub(crate) fn fields(&self) -> Result<Vec<Field>> {
        let picked = self.chosen.pick.features.iter().zip(&self.chosen.columns);
        let one = |(feature, column): (&FeatureName, &String)| {
            let field = self.view.field(feature);
            let field = field.ok_or_else(|| Error::internal("a feature that is gone"))?;
            Ok(Field::new(column, schema::arrow(field.kind), true))
        };
        picked.map(one).collect()
    }

    /// Its features of some moments. `joined` has the columns of what it needs, view by view.
    pub(crate) fn run(
        &self,
        moments: &RecordBatch,
        joined: &[Vec<ArrayRef>],
    ) -> Result<Vec<ArrayRef>> {
        let gone = || Error::internal("something that a view is computed from is gone");
        let column = |input: &InputForm| {
            let place = self.demand.inputs.iter().position(|known| known == input);
            if let Some((side, column)) = place.and_then(|place| self.places[place]) {
                return joined
                    .get(side)
                    .and_then(|side| side.get(column))
                    .cloned()
                    .ok_or_else(gone);
            }
            let name = input.column.name.as_str();
            let column = moments.column_by_name(name).ok_or_else(gone)?;
            fit(&format!("moments.{name}"), column, &schema::arrow(input.column.kind))
        };
        let columns = self.demand.run(column, moments.num_rows()).map_err(|error| {
            let text = format!("the feature view {}: {}", self.view.name, error.message());
            Error::new(error.code(), text).caused_by(error)
        })?;
        let place = |feature: &FeatureName| {
            self.view.fields.iter().position(|field| field.name == *feature)
        };
        let picked = self.chosen.pick.features.iter().map(|feature| {
            place(feature).and_then(|place| columns.get(place)).cloned().ok_or_else(gone)
        });
        picked.collect()
    }
}
