//! Answers to clients that look at the kernel while another one is served: symbols, lists and memory, as they are
//! without the splices of a session. Nothing that changes the kernel is among them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use gilk_engine::{Addr, Image, Span};

use super::kernel::{self, Memory};
use super::server::Common;
use super::sys;
use crate::note;
use crate::protocol::{
    self, Bytes, CHUNK, Decoder, Incoming, Message, Opening, Refusal, RefusalKind, Request, encode,
};

/// Name of the virtio port for clients that look.
const PORT: &str = "gilk.look";
const PORTS: &str = "/sys/class/virtio-ports";

/// Carries out a request of a client that looks, and sends the answers to `out`.
pub(super) fn answer(
    request: &Request,
    common: &Common,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let mut send = |message: &Message| {
        let bytes = encode(message).map_err(std::io::Error::other)?;
        out.write_all(&bytes)
    };
    if let Err(refusal) = request.check() {
        return send(&Message::Refused(refusal));
    }
    let answer = match *request {
        Request::Status => {
            let parked = common.parking.remaining();
            Ok(Message::Status(common.board.status(parked)))
        }
        Request::Look => match common.board.target() {
            Some(target) => Ok(Message::Info(Box::new(target))),
            None => Err(busy()),
        },
        Request::Kallsyms => {
            return chunks(&mut send, common, |lists| (lists.kallsyms.as_str(), ""));
        }
        Request::Blacklist => {
            return chunks(&mut send, common, |lists| {
                (lists.blacklist.0.as_str(), lists.blacklist.1.as_str())
            });
        }
        Request::Modules => {
            return chunks(&mut send, common, |lists| {
                (lists.sections.0.as_str(), lists.sections.1.as_str())
            });
        }
        Request::Read { address, length } => match memory(common, address, length) {
            Ok(bytes) => {
                for chunk in bytes.chunks(CHUNK) {
                    send(&Message::Chunk(Bytes::from(chunk.to_vec())))?;
                }
                Ok(Message::End(String::new()))
            }
            Err(refusal) => Err(refusal),
        },
        _ => Err(busy()),
    };
    send(&answer.unwrap_or_else(Message::Refused))
}

/// The refusal of everything but looking.
pub(super) fn busy() -> Refusal {
    Refusal::new(
        RefusalKind::Busy,
        format!(
            "Another program is using the agent on {} (`ilk status` shows which); close it and try again.",
            kernel::host()
        ),
    )
}

fn chunks(
    send: &mut impl FnMut(&Message) -> std::io::Result<()>,
    common: &Common,
    part: impl Fn(&super::image::Lists) -> (&str, &str),
) -> std::io::Result<()> {
    let lists = match common.kernel.last_lists() {
        Ok(lists) => lists,
        Err(refusal) => return send(&Message::Refused(refusal)),
    };
    let (text, note) = part(&lists);
    for chunk in text.as_bytes().chunks(CHUNK) {
        send(&Message::Chunk(Bytes::from(chunk.to_vec())))?;
    }
    send(&Message::End(note.to_owned()))
}

/// Returns memory as it is without splices: while a session has any, that of the image that it was planned on.
fn memory(common: &Common, address: u64, length: u64) -> Result<Vec<u8>, Refusal> {
    common.kernel.last_lists()?.check(address, length)?;
    let span = Span::new(Addr(address), length);
    let original = |image: &Image| image.bytes(span).map(<[u8]>::to_vec);
    if let Some(bytes) = common.board.image().as_deref().and_then(original) {
        return Ok(bytes);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    Memory::open()?.read(address, &mut bytes)?;
    // A session may have begun meanwhile.
    let image = common.board.image();
    Ok(image.as_deref().and_then(original).unwrap_or(bytes))
}

/// Returns the device of the port for clients that look, if this machine has one.
fn port() -> Option<std::path::PathBuf> {
    let ports = std::fs::read_dir(PORTS).ok()?.flatten();
    let mut named = ports.filter(|port| {
        std::fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == PORT)
    });
    Some(Path::new("/dev").join(named.next()?.file_name()))
}

/// Serves clients that look at a port of their own, one after the other, in a thread. A machine without the port has
/// none.
pub(super) fn serve_port(common: &Common) -> std::io::Result<()> {
    let Some(path) = port() else { return Ok(()) };
    let port = File::options().read(true).write(true).open(path)?;
    let changes = sys::Changes::of(port.as_fd())?;
    let common = common.clone();
    let thread = std::thread::Builder::new().name(String::from("look"));
    let serve = move || {
        if let Err(error) = serve(&port, &changes, &common) {
            note!("The port for clients that look broke: {error}.");
        }
    };
    thread.spawn(serve).map(drop)
}

fn serve(mut port: &File, changes: &sys::Changes, common: &Common) -> std::io::Result<()> {
    let mut decoder = Decoder::new();
    let mut buffer = [0; 4096];
    loop {
        // A port without a client reads as ended.
        match port.read(&mut buffer)? {
            0 => {
                changes.wait()?;
                continue;
            }
            count => decoder.push(buffer.get(..count).unwrap_or(&buffer)),
        }
        loop {
            match decoder.take::<Request>() {
                Ok(None) => break,
                Ok(Some(Incoming::Opening(opening))) => {
                    let answer = Opening {
                        version: protocol::VERSION,
                        nonce: opening.nonce,
                    };
                    port.write_all(&answer.to_bytes())?;
                }
                Ok(Some(Incoming::Message(request))) => answer(&request, common, &mut port)?,
                Err(error) => {
                    let refusal = Refusal::new(RefusalKind::Request, error.to_string());
                    let bytes =
                        encode(&Message::Refused(refusal)).map_err(std::io::Error::other)?;
                    port.write_all(&bytes)?;
                    break;
                }
            }
        }
    }
}
