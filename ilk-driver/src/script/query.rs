//! From the hooks of a script to a session: each set of clauses that stands on the same code becomes an instrument,
//! and each hook a placement.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gilk_engine::code::{Function, FunctionId, Origin, ProbeArgument};
use gilk_engine::session::{Placement, Session};
use gilk_engine::{HookType, Image};
use gilk_instruments::{Context, Fault, Source};

use super::parse::{Group, Script};
use super::point::{FunctionEvent, PointKind};
use crate::tracepoint;

/// Code of a kernel that a script cannot stand on, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its name.
    pub function: String,
    /// The reason, without the function.
    pub reason: String,
}

/// The code of a placement, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its symbol.
    pub function: String,
    /// The hook, if it is one of a block: `block 3 pre`.
    pub hook: Option<String>,
}

impl Place {
    /// Returns the function, the number of the block, and the hook, for people's order: block 2 before block 10.
    fn order(&self) -> (&str, Option<u32>, Option<&str>) {
        let hook = self.hook.as_deref();
        let mut words = hook.into_iter().flat_map(str::split_whitespace);
        let block = words.find_map(|word| word.parse().ok());
        (&self.function, block, hook)
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        match &self.hook {
            Some(hook) => write!(f, " {hook}"),
            None => Ok(()),
        }
    }
}

/// A script in one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The session, which lasts as long as requested.
    pub session: Session,
    /// The place of each placement.
    pub places: Vec<Place>,
    /// Names of aggregates of instruments that only count, by instrument.
    pub counters: BTreeMap<String, String>,
    /// Functions of wildcards that are left out.
    pub absent: Vec<Absent>,
}

/// Restrictions of a script, and the length of its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Seconds.
    pub duration: f64,
    /// The only process whose hits count.
    pub pid: Option<u32>,
}

/// A placement of a clause at a hook of a block.
pub(super) struct AtBlock {
    pub(super) clause: usize,
    pub(super) function: FunctionId,
    pub(super) block: u32,
    pub(super) hook: HookType,
    /// The arguments of the static probe that the block begins with, if the clause names it.
    pub(super) arguments: Option<Vec<ProbeArgument>>,
}

/// The code that the clauses of a script stand on.
#[derive(Default)]
pub(super) struct ScriptHooks {
    /// Clauses at functions, in the order of the script.
    pub(super) functions: BTreeMap<FunctionId, Vec<(usize, Option<FunctionEvent>)>>,
    pub(super) blocks: Vec<AtBlock>,
    pub(super) absent: Vec<Absent>,
}

impl ScriptHooks {
    /// Returns the query of these hooks.
    ///
    /// # Errors
    /// Statements that are wrong for all functions that their clause stands on.
    pub(super) fn query(
        self,
        script: &Script,
        image: &Image,
        filter: Filter,
    ) -> Result<Query, Vec<Fault>> {
        let builder = QueryBuilder {
            script,
            image,
            designations: Designations::new(image),
        };
        builder.session(self, filter)
    }
}

/// Names of functions that sessions know them by.
#[derive(Debug)]
pub struct Designations<'i> {
    /// The number of functions of each name.
    names: HashMap<&'i str, u32>,
}

impl<'i> Designations<'i> {
    /// Those of an image.
    #[must_use]
    pub fn new(image: &'i Image) -> Self {
        let mut names = HashMap::new();
        for function in image.functions() {
            *names.entry(function.name.as_str()).or_insert(0) += 1;
        }
        Self { names }
    }

    /// The name of a function, with its address where others have the name too.
    #[must_use]
    pub fn of(&self, function: &Function) -> Arc<str> {
        match self.names.get(function.name.as_str()) {
            Some(1) => Arc::from(function.name.as_str()),
            _ => Arc::from(format!("{}@{}", function.name, function.span.start)),
        }
    }
}

struct QueryBuilder<'a> {
    script: &'a Script,
    image: &'a Image,
    designations: Designations<'a>,
}

impl QueryBuilder<'_> {
    fn session(self, hooks: ScriptHooks, filter: Filter) -> Result<Query, Vec<Fault>> {
        // Placements by instrument, so that each source is parsed once.
        let mut groups: BTreeMap<Group, Vec<(FunctionId, u32, HookType)>> = BTreeMap::new();
        for (function, list) in hooks.functions {
            let placed = (function, 0, HookType::Pre);
            groups.entry(Group::of(list)).or_default().push(placed);
        }
        for one in hooks.blocks {
            let group = Group {
                arguments: one.arguments,
                ..Group::of(vec![(one.clause, None)])
            };
            let placed = (one.function, one.block, one.hook);
            groups.entry(group).or_default().push(placed);
        }
        let mut query = Query {
            session: Session {
                name: String::from("ilk -e"),
                duration: filter.duration,
                tracepoints: self.script.names_tracepoints() || self.script.names_static_probes(),
                ..Session::empty()
            },
            places: Vec::new(),
            counters: BTreeMap::new(),
            absent: hooks.absent,
        };
        let mut faults = Vec::new();
        let mut variants: BTreeMap<Vec<_>, usize> = BTreeMap::new();
        // Clauses with a placement, and faults at static probes, by clause.
        let mut fine = BTreeSet::new();
        let mut unread = Vec::new();
        for (mut group, placed) in groups {
            let variants = variants.entry(group.clauses.clone()).or_default();
            group.variant = *variants;
            *variants += 1;
            match self.place(&group, &placed, filter, &mut query) {
                Ok(()) => {
                    fine.insert(group.clauses);
                }
                Err(wrong) if group.arguments.is_some() => {
                    unread.push((group.clauses, placed, wrong));
                }
                Err(wrong) => faults.extend(wrong),
            }
        }
        for (clauses, placed, wrong) in unread {
            // Of several places of a probe, those are left out whose arguments cannot be read.
            match wrong.first().filter(|_| fine.contains(&clauses)) {
                Some(fault) => query
                    .absent
                    .extend(placed.iter().map(|(id, block, _)| Absent {
                        function: format!("{} block {block}", self.image[*id].name),
                        reason: fault.message.clone(),
                    })),
                None => faults.extend(wrong),
            }
        }
        faults.sort_by_key(|fault: &Fault| fault.span.start);
        faults.dedup();
        if faults.is_empty() {
            Ok(query)
        } else {
            Err(faults)
        }
    }

    /// Adds the placements of one instrument.
    fn place(
        &self,
        group: &Group,
        placed: &[(FunctionId, u32, HookType)],
        filter: Filter,
        query: &mut Query,
    ) -> Result<(), Vec<Fault>> {
        let aligned = group.replaced(self.script.aligned(group));
        let aligned = aligned.map_err(|fault| vec![fault])?;
        let source = Source::parse(&aligned.text).map_err(|wrong| aligned.original(wrong.list))?;
        let counted = Group {
            clauses: (group.clauses.iter())
                .map(|&(clause, _)| (clause, None))
                .collect(),
            ..group.clone()
        };
        let entries = matches!(
            group.clauses.as_slice(),
            [(_, None | Some(FunctionEvent::Entry))]
        );
        // A count of entries is one instruction at the hook before block 0.
        let counts = entries
            && filter.pid.is_none()
            && Source::parse(&self.script.aligned(&counted)).is_ok_and(|hit| hit.is_counter());
        let group = if counts { &counted } else { group };
        let name: Arc<str> = Arc::from(group.name());
        if counts && let Some(aggregate) = self.aggregate(group) {
            query.counters.insert(name.to_string(), aggregate);
        }
        let mut wrong: Option<Vec<Fault>> = None;
        let mut placements = 0;
        let mut fine: BTreeSet<FunctionId> = BTreeSet::new();
        for (index, &(id, block, hook)) in placed.iter().enumerate() {
            let Some(function) = self.image.function(id) else {
                debug_assert!(false, "a function of the image is not in it");
                continue;
            };
            let designation = self.designations.of(function);
            if (index == 0 || source.depends_on_function()) && fine.insert(id) {
                let context = Context {
                    types: self.image.types(),
                    function: Some(&designation),
                    of_process: self.image.origin() == Origin::Object,
                };
                if let Err(faults) = source.check(&context) {
                    let first = faults.list.first();
                    query.absent.push(Absent {
                        function: function.name.clone(),
                        reason: first.map_or(String::new(), |fault| fault.message.clone()),
                    });
                    wrong.get_or_insert(aligned.original(faults.list));
                    fine.remove(&id);
                    if !source.depends_on_function() {
                        break;
                    }
                    continue;
                }
            }
            placements += 1;
            query.session.placements.push(Placement {
                function: designation,
                block,
                hook,
                instrument: Arc::clone(&name),
                launch: 0.0,
                splash: filter.duration,
            });
            let of_function = matches!(group.clauses.as_slice(), [(_, Some(_)), ..])
                || counts && self.is_function(group);
            let tracepoint = tracepoint::of_function(&function.name).filter(|_| of_function);
            query.places.push(Place {
                function: tracepoint.map_or_else(
                    || function.name.clone(),
                    |tracepoint| format!("tracepoint:{}", tracepoint.name),
                ),
                hook: (!of_function).then(|| format!("block {block} {hook}")),
            });
        }
        if placements == 0
            && let Some(wrong) = wrong
        {
            return Err(wrong);
        }
        let text = self.script.source(group, filter.pid);
        query.session.sources.insert(name.to_string(), text);
        Ok(())
    }

    /// Returns whether a clause stands on functions only.
    fn is_function(&self, group: &Group) -> bool {
        let clauses = group.clauses.iter();
        let clauses = clauses.filter_map(|&(clause, _)| self.script.clauses.get(clause));
        clauses.flat_map(|clause| &clause.points).all(|point| {
            matches!(
                point.kind,
                PointKind::Function(..) | PointKind::Tracepoint(_)
            )
        })
    }

    /// Returns the name of the only aggregate of an instrument that only counts.
    fn aggregate(&self, group: &Group) -> Option<String> {
        let clause = self.script.clauses.get(group.clauses.first()?.0)?;
        let (_, rest) = self.script.slice(clause.body).split_once('@')?;
        let name = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_');
        Some(name.collect())
    }
}
