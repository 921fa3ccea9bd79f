//! Questions about a kernel or a process: each is a session made in one step, with the view that answers it.
//!
//! `question` lists them, `session` places the instruments, `answer` makes the session and chooses the
//! view.

mod answer;
mod of_process;
mod question;
mod session;

pub use question::Question;
pub use session::Made;
