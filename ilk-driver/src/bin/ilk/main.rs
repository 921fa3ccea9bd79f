//! `ilk`: the terminal program. One file per command.

mod agent;
#[cfg(feature = "client")]
mod answer;
#[cfg(feature = "client")]
mod cfg;
#[cfg(feature = "client")]
mod coverage;
#[cfg(feature = "client")]
mod diff;
mod doctor;
#[cfg(feature = "client")]
mod dump;
#[cfg(feature = "client")]
mod export;
#[cfg(feature = "client")]
mod functions;
#[cfg(feature = "client")]
mod help;
#[cfg(feature = "client")]
mod histogram;
#[cfg(feature = "client")]
mod import;
#[cfg(feature = "client")]
mod instrument;
#[cfg(feature = "client")]
mod join;
#[cfg(feature = "client")]
mod lab;
#[cfg(feature = "client")]
mod manual;
#[cfg(feature = "client")]
mod output;
#[cfg(feature = "client")]
mod pager;
#[cfg(feature = "client")]
mod picture;
#[cfg(feature = "client")]
mod plan;
#[cfg(feature = "client")]
mod process;
#[cfg(feature = "client")]
mod program;
#[cfg(feature = "client")]
mod progress;
#[cfg(feature = "client")]
mod resume;
#[cfg(feature = "client")]
mod run;
#[cfg(feature = "client")]
mod script;
#[cfg(feature = "client")]
mod show;
#[cfg(feature = "client")]
mod span;
#[cfg(feature = "client")]
mod stats;
#[cfg(feature = "client")]
mod status;
#[cfg(feature = "client")]
mod target;
#[cfg(feature = "client")]
mod totals;

use std::io::ErrorKind;
use std::process::ExitCode;

#[cfg(feature = "client")]
use clap::CommandFactory as _;
use clap::{Parser, Subcommand};

/// Instrument a running Linux kernel, one basic block at a time.
#[derive(Parser)]
#[command(
    name = "ilk",
    version,
    propagate_version = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Ilk {
    #[command(subcommand)]
    command: Option<Command>,
    #[cfg(feature = "client")]
    #[command(flatten)]
    script: script::ScriptCommand,
}

impl Ilk {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Some(command) => command.run(),
            #[cfg(feature = "client")]
            None => self.script.run(),
            #[cfg(not(feature = "client"))]
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Agent),
    #[cfg(feature = "client")]
    Count(script::Count),
    #[cfg(feature = "client")]
    Top(script::Top),
    #[cfg(feature = "client")]
    Trace(script::Trace),
    #[cfg(feature = "client")]
    Latency(script::Latency),
    #[cfg(feature = "client")]
    Callers(script::Callers),
    #[cfg(feature = "client")]
    Process(process::Process),
    #[cfg(feature = "client")]
    Lab(lab::LabCommand),
    #[cfg(feature = "client")]
    Functions(functions::Functions),
    #[cfg(feature = "client")]
    Cfg(cfg::CfgCommand),
    #[cfg(feature = "client")]
    Coverage(coverage::CoverageCommand),
    #[cfg(feature = "client")]
    Instrument(instrument::Instrument),
    #[cfg(feature = "client")]
    Plan(plan::PlanCommand),
    #[cfg(feature = "client")]
    Run(run::Run),
    #[cfg(feature = "client")]
    Resume(resume::Resume),
    #[cfg(feature = "client")]
    Status(status::StatusCommand),
    #[cfg(feature = "client")]
    Stop(status::Stop),
    #[cfg(feature = "client")]
    Show(show::Show),
    #[cfg(feature = "client")]
    Stats(stats::Stats),
    #[cfg(feature = "client")]
    Diff(diff::Diff),
    #[cfg(feature = "client")]
    Export(export::Export),
    #[cfg(feature = "client")]
    Import(import::Import),
    #[cfg(feature = "client")]
    Join(join::Join),
    #[cfg(feature = "client")]
    Dump(dump::Dump),
    Doctor(doctor::Doctor),
    #[cfg(feature = "client")]
    Help(help::Help),
    #[cfg(feature = "client")]
    #[command(name = "man")]
    Manual(manual::Manual),
    #[cfg(feature = "client")]
    Completions(manual::Completions),
}

impl Command {
    fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self {
            #[cfg(feature = "client")]
            Self::Count(count) => return count.run(),
            #[cfg(feature = "client")]
            Self::Top(top) => return top.run(),
            #[cfg(feature = "client")]
            Self::Trace(trace) => return trace.run(),
            #[cfg(feature = "client")]
            Self::Latency(latency) => return latency.run(),
            #[cfg(feature = "client")]
            Self::Callers(callers) => return callers.run(),
            #[cfg(feature = "client")]
            Self::Process(process) => return process.run(),
            Self::Doctor(doctor) => return doctor.run(),
            Self::Agent(agent) => agent.run(),
            #[cfg(feature = "client")]
            Self::Lab(lab) => lab.run(),
            #[cfg(feature = "client")]
            Self::Functions(functions) => functions.run(),
            #[cfg(feature = "client")]
            Self::Cfg(cfg) => cfg.run(),
            #[cfg(feature = "client")]
            Self::Coverage(coverage) => coverage.run(),
            #[cfg(feature = "client")]
            Self::Instrument(instrument) => instrument.run(),
            #[cfg(feature = "client")]
            Self::Plan(plan) => plan.run(),
            #[cfg(feature = "client")]
            Self::Run(run) => return run.run(),
            #[cfg(feature = "client")]
            Self::Resume(resume) => return resume.run(),
            #[cfg(feature = "client")]
            Self::Status(status) => status.run(),
            #[cfg(feature = "client")]
            Self::Stop(stop) => stop.run(),
            #[cfg(feature = "client")]
            Self::Show(show) => show.run(),
            #[cfg(feature = "client")]
            Self::Stats(stats) => stats.run(),
            #[cfg(feature = "client")]
            Self::Diff(diff) => diff.run(),
            #[cfg(feature = "client")]
            Self::Export(export) => export.run(),
            #[cfg(feature = "client")]
            Self::Import(import) => import.run(),
            #[cfg(feature = "client")]
            Self::Join(join) => join.run(),
            #[cfg(feature = "client")]
            Self::Dump(dump) => dump.run(),
            #[cfg(feature = "client")]
            Self::Help(help) => help.run(Ilk::command()),
            #[cfg(feature = "client")]
            Self::Manual(manual) => manual.run(Ilk::command()),
            #[cfg(feature = "client")]
            Self::Completions(completions) => completions.run(Ilk::command()),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

fn main() -> ExitCode {
    ilk_driver::memory::give_back();
    ilk_driver::interrupt::outlive_limits();
    match Ilk::parse().run() {
        Ok(status) => status,
        // The reader of the output has closed it: `ilk functions | head`.
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ilk: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the error and its causes, without causes that it already quotes.
fn sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |text, cause| match text {
            text if text.is_empty() => cause,
            text if text.contains(&cause) => text,
            text => format!("{text}: {cause}"),
        })
}
