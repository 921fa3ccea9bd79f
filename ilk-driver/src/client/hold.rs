//! How a session is held on to: what came is told to be safe, and a connection that breaks is made
//! anew as long as the session's grace lasts.

use std::time::{Duration, Instant};

use super::wire::{Wire, unguessable};
use crate::protocol::{Message, Request};
use crate::{Error, Result};

/// Messages, and time, after which the agent is told that they are safe: it keeps them until then.
const MANY: u64 = 64;
const OFTEN: Duration = Duration::from_millis(200);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(100);
/// How long an agent may take to answer a client that is back.
const PATIENCE: Duration = Duration::from_secs(5);

/// One session's.
pub(super) struct Hold {
    pub(super) token: u64,
    grace: Duration,
    taken: u64,
    told: u64,
    when: Instant,
}

impl Hold {
    pub(super) fn new(grace: f64) -> Self {
        Self {
            token: unguessable(),
            grace: Duration::from_secs_f64(grace),
            taken: 0,
            told: 0,
            when: Instant::now(),
        }
    }

    /// A message was taken in.
    pub(super) fn took(&mut self, wire: &mut Wire, message: &Message) {
        if !message.is_of_session() || self.grace.is_zero() {
            return;
        }
        self.taken += 1;
        let last = matches!(message, Message::Finished(_));
        if last || self.taken - self.told >= MANY || self.when.elapsed() >= OFTEN {
            (self.told, self.when) = (self.taken, Instant::now());
            // If it is lost, so is the connection, which is found out next.
            let _lost = wire.send(&Request::Taken(self.taken));
        }
    }

    /// Finds the session again over a new connection.
    ///
    /// # Errors
    /// What had gone wrong, if it is no connection that broke, or cannot be had again in time.
    pub(super) fn regain(&mut self, wire: &mut Wire, lost: Error) -> Result<()> {
        if self.grace.is_zero() || !matches!(lost, Error::Lost { .. }) {
            return Err(lost);
        }
        let until = Instant::now() + self.grace;
        while Instant::now() < until {
            let resume = Request::Resume {
                token: self.token,
                taken: self.taken,
            };
            let answer = wire
                .reopen(PATIENCE)
                .and_then(|()| wire.send(&resume))
                .and_then(|()| wire.answer(PATIENCE, "while the session was resumed"));
            match answer {
                Ok(Message::Accepted) => return Ok(()),
                // It is over there.
                Err(Error::Refused(_)) => return Err(lost),
                // Nobody is there for now, or the agent has not noticed yet that we were lost.
                _ => std::thread::sleep(AGAIN),
            }
        }
        Err(lost)
    }
}
