//! The program of a session, and the exit status that it gives to the command.

use std::process::ExitCode;

/// Returns the exit status of a command whose program ended without success: the program's, or 1 if
/// it could not start or was killed by a signal. `status` is the system's description.
pub(crate) fn exit(status: &str) -> ExitCode {
    let code = status.strip_prefix("exit status: ");
    let code = code.and_then(|code| code.parse::<u8>().ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_passes_its_status_on() {
        assert_eq!(exit("exit status: 3"), ExitCode::from(3));
        for status in ["signal: 9 (SIGKILL)", "No such file", "exit status: 256"] {
            assert_eq!(exit(status), ExitCode::FAILURE, "{status}");
        }
    }
}
