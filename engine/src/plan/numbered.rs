//! The functions of a session while they get their numbers, with the graphs that placement reads.

use std::collections::HashMap;

use super::error::internal;
use super::functions::{Functions, SessionFunction};
use super::major::Major;
use super::model::PlannedFunction;
use crate::cfg::{Cfg, Outline};
use crate::code::FunctionId;
use crate::ids::Ids;
use crate::liveness::RegisterSet;
use crate::placement::{Comparison, Style};
use crate::{Image, Result};

/// Every function with instruments, by major number.
pub(super) struct FunctionTable<'a> {
    image: &'a Image,
    graphs: Ids<Major, Cfg>,
    /// Registers that instruments of the function read.
    sampled: Ids<Major, RegisterSet>,
    majors: HashMap<FunctionId, Major>,
}

impl<'a> FunctionTable<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self {
            image,
            graphs: Ids::new(),
            sampled: Ids::new(),
            majors: HashMap::new(),
        }
    }

    /// The major number of a function: by first appearance, whichever of its names is written.
    pub(super) fn major(&mut self, name: &str) -> Result<Major> {
        let function = self.image.function_named(name)?;
        Ok(self.major_of(function.id))
    }

    /// The major number of a function by its identity.
    pub(super) fn major_of(&mut self, function: FunctionId) -> Major {
        if let Some(&major) = self.majors.get(&function) {
            return major;
        }
        let major = self.graphs.push(Cfg::of(self.image, function));
        self.sampled.push(RegisterSet::EMPTY);
        self.majors.insert(function, major);
        major
    }

    pub(super) fn graph(&self, major: Major) -> &Cfg {
        &self.graphs[major]
    }

    /// All graphs.
    pub(super) const fn graphs(&self) -> &Ids<Major, Cfg> {
        &self.graphs
    }

    /// Records that an instrument of the function reads the registers.
    pub(super) fn sample_all(&mut self, major: Major, registers: RegisterSet) {
        let sampled = &mut self.sampled[major];
        *sampled = sampled.union(registers);
    }

    /// Records the style of each function, by major number, and drops the graphs.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if there are not as many styles as functions.
    pub(super) fn placed(
        self,
        styles: Vec<Style>,
        compared: Vec<Option<Comparison>>,
    ) -> Result<Functions<'a>> {
        let count = self.graphs.len();
        if (styles.len(), compared.len()) != (count, count) {
            return Err(internal("a function has no style"));
        }
        let mut functions = Ids::<Major, _>::new();
        let taken = styles.into_iter().zip(compared);
        let graphs = self.graphs.into_values().into_iter().zip(taken);
        for ((major, &sampled), (cfg, (style, compared))) in self.sampled.iter().zip(graphs) {
            let planned = PlannedFunction {
                major: major.number(),
                outline: Outline::from(&cfg),
                name: cfg.name,
                style,
                compared: compared.map(Box::new),
            };
            functions.push(SessionFunction { planned, sampled });
        }
        Ok(Functions::new(self.image, functions, self.majors))
    }
}
