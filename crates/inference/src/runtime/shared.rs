//! A session of the library that several threads run at once.
//!
//! The library's makers say that a session keeps nothing between runs and may be run by several threads, and
//! where a provider cannot, the library lets one run wait for the other. `ort` trusts no provider with that and
//! asks for the session alone. Here there is only the provider for processors, and what is shared is worth it:
//! weights that stay near both processors, since they are the same. Two threads of a network of 15 MB are an
//! eighth faster than with a session each, and four of two such networks a quarter.
//!
//! What must hold: whoever runs has options of its own, so that ending a run ends no other; results are gone
//! before the session is.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};

use falaj_base::{Error, Result};
use ort::AsPointer;
use ort::session::{RunOptions, Session, SessionInputValue};
use ort::value::DynValue;

use crate::onnx::{Metadata, ValueInfo};

#[derive(Debug)]
pub(super) struct Shared {
    session: Session,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

impl Shared {
    pub(super) fn new(session: Session, metadata: &Metadata) -> Result<Self> {
        let names = |values: &[ValueInfo]| {
            let names = values.iter().map(|value| CString::new(value.name.as_str()));
            names.collect::<Result<Vec<_>, _>>().map_err(Error::internal)
        };
        let (inputs, outputs) = (names(&metadata.inputs)?, names(&metadata.outputs)?);
        Ok(Self { session, inputs, outputs })
    }

    /// Computes the outputs in these places from inputs by name, in any order.
    #[allow(unsafe_code, reason = "`ort` has no door for several at once")]
    pub(super) fn run(
        &self,
        inputs: &[(&str, SessionInputValue<'_>)],
        outputs: &[usize],
        options: &RunOptions,
    ) -> ort::Result<Vec<DynValue>> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (name, value) in inputs {
            let known = |known: &&CString| known.as_bytes() == name.as_bytes();
            let known = self.inputs.iter().find(known);
            let known = known.ok_or_else(|| ort::Error::new(format!("no input {name:?}")))?;
            names.push(known.as_c_str());
            values.push(value.ptr());
        }
        let wanted: Vec<&CStr> = outputs.iter().map(|&place| &*self.outputs[place]).collect();
        let (names, wanted) = (pointers(&names), pointers(&wanted));
        let mut results = vec![ptr::null_mut(); wanted.len()];
        // SAFETY: the session, its options, the names and the values live until this returns, and there are as
        // many of one as of the other. The library changes nothing that it is given but `results`.
        unsafe {
            let status = (ort::api().Run)(
                self.session.ptr().cast_mut(),
                options.ptr(),
                names.as_ptr(),
                values.as_ptr(),
                values.len(),
                wanted.as_ptr(),
                wanted.len(),
                results.as_mut_ptr(),
            );
            ort::Error::result_from_status(status)?;
        }
        results.into_iter().map(|result| self.own(result)).collect()
    }

    #[allow(unsafe_code, reason = "the library hands out pointers")]
    fn own(&self, result: *mut ort::sys::OrtValue) -> ort::Result<DynValue> {
        let result = NonNull::new(result).ok_or_else(|| ort::Error::new("a result is missing"))?;
        // SAFETY: a run that succeeded has made it, from this allocator, and gives it away.
        Ok(unsafe { DynValue::from_ptr(result, Some(self.session.allocator())) })
    }
}

fn pointers(names: &[&CStr]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}
