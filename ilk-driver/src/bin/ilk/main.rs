//! `ilk`: the terminal program. One file per command.

#![cfg_attr(
    not(test),
    warn(
        clippy::print_stdout,
        clippy::print_stderr,
        reason = "print! panics when its reader is gone"
    )
)]

mod accesses;
mod agent;
mod answer;
mod blocks;
mod cfg;
mod clone;
mod clone_executions;
mod clone_instruments;
mod coverage;
mod diff;
mod doctor;
mod dump;
mod export;
mod functions;
mod help;
mod import;
mod instrument;
mod join;
mod kernel_side;
mod lab;
mod manual;
mod output;
mod pager;
mod picture;
mod plan;
mod process;
mod process_children;
mod process_count;
mod process_every;
mod process_executions;
mod process_lines;
mod process_names;
mod process_replaced;
mod process_results;
mod program;
mod progress;
mod reference;
mod resume;
mod run;
mod script;
mod show;
mod span;
mod stats;
mod status;
mod supervisor;
mod target;
mod tools;

use ilk_driver::note;
use std::io::ErrorKind;
use std::process::ExitCode;

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
    #[command(flatten)]
    script: script::ScriptCommand,
}

impl Ilk {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Some(command) => command.run(),
            None => self.script.run(),
        }
    }
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Agent),
    Count(script::Count),
    Top(script::Top),
    Trace(script::Trace),
    Latency(script::Latency),
    Callers(script::Callers),
    Script(script::ScriptFile),
    Process(process::Process),
    Clone(clone::Clone),
    Accesses(accesses::Accesses),
    Lab(lab::LabCommand),
    Functions(functions::Functions),
    Cfg(cfg::CfgCommand),
    Coverage(coverage::CoverageCommand),
    Instrument(instrument::Instrument),
    Plan(plan::PlanCommand),
    Run(run::Run),
    Resume(resume::Resume),
    Status(status::StatusCommand),
    Stop(status::Stop),
    Show(show::Show),
    Stats(stats::Stats),
    Diff(diff::Diff),
    Export(export::Export),
    Import(import::Import),
    Join(join::Join),
    Dump(dump::Dump),
    Doctor(doctor::Doctor),
    Help(help::Help),
    #[command(name = "man")]
    Manual(manual::Manual),
    Completions(manual::Completions),
}

impl Command {
    fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self {
            Self::Count(count) => return count.run(),
            Self::Top(top) => return top.run(),
            Self::Trace(trace) => return trace.run(),
            Self::Latency(latency) => return latency.run(),
            Self::Callers(callers) => return callers.run(),
            Self::Script(script) => return script.run(),
            Self::Process(process) => return process.run(),
            Self::Clone(clone) => return clone.run(),
            Self::Doctor(doctor) => return doctor.run(),
            Self::Accesses(accesses) => accesses.run(),
            Self::Agent(agent) => agent.run(),
            Self::Lab(lab) => lab.run(),
            Self::Functions(functions) => functions.run(),
            Self::Cfg(cfg) => cfg.run(),
            Self::Coverage(coverage) => coverage.run(),
            Self::Instrument(instrument) => instrument.run(),
            Self::Plan(plan) => plan.run(),
            Self::Run(run) => return run.run(),
            Self::Resume(resume) => return resume.run(),
            Self::Status(status) => status.run(),
            Self::Stop(stop) => stop.run(),
            Self::Show(show) => show.run(),
            Self::Stats(stats) => stats.run(),
            Self::Diff(diff) => diff.run(),
            Self::Export(export) => export.run(),
            Self::Import(import) => import.run(),
            Self::Join(join) => join.run(),
            Self::Dump(dump) => dump.run(),
            Self::Help(help) => help.run(Ilk::command()),
            Self::Manual(manual) => manual.run(Ilk::command()),
            Self::Completions(completions) => completions.run(Ilk::command()),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

fn main() -> ExitCode {
    ilk_driver::memory::give_back();
    ilk_driver::process::begin_calibration();
    ilk_driver::interrupt::outlive_limits();
    match Ilk::parse().run() {
        Ok(status) => status,
        // The reader of the output is gone: `ilk functions | head`.
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let sentence = sentence(&error);
            // What has failed may have been interrupted, such as a program that was not released yet.
            match ilk_driver::interrupt::arrived() && !sentence.starts_with("Interrupted") {
                true => note!("ilk: Interrupted. {sentence}"),
                false => note!("ilk: {sentence}"),
            }
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
