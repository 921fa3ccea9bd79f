//! The functions of a session while they get their numbers, with the graphs that placement reads.

use std::collections::HashMap;

use super::functions::{Functions, SessionFunction};
use super::model::PlannedFunction;
use crate::cfg::{Cfg, Outline};
use crate::code::FunctionId;
use crate::liveness::RegisterSet;
use crate::placement::{Comparison, Style};
use crate::{Image, Result};

/// Every function with instruments, by major number.
pub(super) struct FunctionTable<'a> {
    image: &'a Image,
    graphs: Vec<Cfg>,
    /// By major number, registers that instruments of the function read.
    sampled: Vec<RegisterSet>,
    majors: HashMap<FunctionId, u32>,
}

impl<'a> FunctionTable<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self {
            image,
            graphs: Vec::new(),
            sampled: Vec::new(),
            majors: HashMap::new(),
        }
    }

    /// The major number of a function: by first appearance, whichever of its names is written.
    pub(super) fn major(&mut self, name: &str) -> Result<u32> {
        let function = self.image.function_named(name)?;
        Ok(self.major_of(function.id))
    }

    /// The major number of a function by its identity.
    pub(super) fn major_of(&mut self, function: FunctionId) -> u32 {
        if let Some(&major) = self.majors.get(&function) {
            return major;
        }
        let major = u32::try_from(self.graphs.len()).unwrap_or(u32::MAX);
        self.graphs.push(Cfg::of(self.image, function));
        self.sampled.push(RegisterSet::EMPTY);
        self.majors.insert(function, major);
        major
    }

    pub(super) fn graph(&self, major: u32) -> Option<&Cfg> {
        self.graphs.get(major as usize)
    }

    /// All graphs, by major number.
    pub(super) fn graphs(&self) -> Vec<&Cfg> {
        self.graphs.iter().collect()
    }

    /// Records that an instrument of the function reads the registers.
    pub(super) fn sample_all(&mut self, major: u32, registers: RegisterSet) {
        if let Some(sampled) = self.sampled.get_mut(major as usize) {
            *sampled = sampled.union(registers);
        }
    }

    /// Records the style of each function, by major number, and drops the graphs.
    pub(super) fn placed(
        self,
        styles: Vec<Style>,
        compared: Vec<Option<Comparison>>,
    ) -> Functions<'a> {
        let taken = styles.into_iter().zip(compared);
        let graphs = self.graphs.into_iter().zip(self.sampled).zip(taken);
        let functions = (0..).zip(graphs).map(|(major, ((cfg, sampled), taken))| {
            let planned = PlannedFunction {
                major,
                outline: Outline::from(&cfg),
                name: cfg.name,
                style: taken.0,
                compared: taken.1.map(Box::new),
            };
            SessionFunction { planned, sampled }
        });
        Functions::new(self.image, functions.collect(), self.majors)
    }
}
