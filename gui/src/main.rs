//! `gilk`: the graphical workbench.

use clap::Parser;
use gilk_gui::app::App;
use gilk_gui::args::Start;
use gilk_gui::{Error, Result};
use gilk_instruments::Library;

fn main() -> std::process::ExitCode {
    ilk_driver::memory::give_back();
    ilk_driver::process::begin_calibration();
    match run(Start::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(mut start: Start) -> Result<()> {
    // A screenshot shows only what the arguments request, not the state of earlier windows.
    if start.state.is_none() && start.screenshot.is_none() {
        start.state = gilk_gui::args::state_folder();
    }
    let display = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"]
        .into_iter()
        .any(display)
    {
        return Err(Error::Window {
            reason: "neither DISPLAY nor WAYLAND_DISPLAY is set".to_owned(),
        });
    }
    let library = Library::builtin().map_err(gilk_engine::Error::from)?;
    let (width, height) = start.size.unwrap_or((1600.0, 1000.0));
    let viewport = eframe::egui::ViewportBuilder::default()
        .with_title("GILK")
        .with_app_id("gilk")
        .with_inner_size([width, height])
        .with_min_inner_size([960.0, 600.0]);
    let options = eframe::NativeOptions {
        viewport,
        ..Default::default()
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let opened = eframe::run_native(
        "gilk",
        options,
        Box::new(move |creation| {
            let app = App::new(&creation.egui_ctx, start, library);
            let _receiver_waits = sender.send(app.failure());
            Ok(Box::new(app))
        }),
    );
    opened.map_err(|error| Error::Window {
        reason: error.to_string(),
    })?;
    let failure = receiver
        .try_recv()
        .ok()
        .and_then(|failure| failure.lock().ok().and_then(|mut failure| failure.take()));
    failure.map_or(Ok(()), Err)
}
