//! Programs of verbs, as data. Objects are slots, memory is an offset, keys are named by whose they
//! are, so that the same program runs on every device.

use mkey_core::rights::Rights;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of memory that one end has for itself: regions of the end A lie in the first so many
/// bytes of the arena, those of B in the second.
pub const HALF: u64 = 16 << 10;
/// Where the page begins that can only be read.
pub const READ_ONLY: u64 = 2 * HALF;
/// Where the page begins that can not be accessed.
pub const HOLE: u64 = READ_ONLY + 4096;
/// Slots for regions.
pub const REGIONS: usize = 8;
/// Slots for windows.
pub const WINDOWS: usize = 4;
/// The most bytes of one message.
pub const MESSAGE: u32 = 5000;

/// A program: its steps, in order. It begins with two connected queue pairs, A and B, on one
/// device and in one protection domain, and another domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What is done; after each step all that it began is waited for.
    pub steps: Vec<Step>,
}

/// One of the two queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "there are just these two")]
pub enum End {
    A,
    B,
}

impl End {
    /// Its number.
    pub const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// The other one.
    pub const fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// `reg_mr`.
    Register(Register),
    /// `rereg_mr`: other rights.
    Reregister {
        /// The region.
        region: u8,
        /// What its rights become.
        #[serde(with = "words")]
        rights: Rights,
    },
    /// `dereg_mr`; of a slot whose region is gone, by the handle that it had.
    Deregister {
        /// The region.
        region: u8,
    },
    /// `alloc_mw`.
    Allocate {
        /// The slot.
        window: u8,
        /// Of type 2, or else of type 1.
        type2: bool,
        /// In the domain that the queue pairs are not in.
        apart: bool,
    },
    /// `dealloc_mw`; of a slot whose window is gone, by the handle that it had.
    Free {
        /// The window.
        window: u8,
    },
    /// `post_send` of a chain.
    Post {
        /// By which queue pair.
        from: End,
        /// The work requests. The last one is signaled, whatever it says.
        chain: Vec<Request>,
    },
    /// `post_recv` of a chain.
    Receive {
        /// By which queue pair.
        at: End,
        /// The entries of each work request.
        chain: Vec<Vec<Entry>>,
    },
    /// `modify_qp` to a state, with the attributes that go with it.
    Modify {
        /// Which queue pair.
        at: End,
        /// The state.
        to: State,
        /// An attribute that is left out.
        without: Option<Attribute>,
    },
    /// Both queue pairs through ERR and RESET to RTS again, connected.
    Connect,
}

/// What to register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The slot. A region that it has is left as it is, but can not be named any more.
    pub region: u8,
    /// In the domain that the queue pairs are not in.
    pub apart: bool,
    /// First byte, in the arena.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The address of the first byte in work requests; without one, where it is.
    pub iova: Option<u64>,
    /// Rights.
    #[serde(with = "words")]
    pub rights: Rights,
}

/// States that a queue pair is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of `enum ibv_qp_state`")]
pub enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Err,
}

/// Attributes without which a change of state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_qp_attr`")]
pub enum Attribute {
    Port,
    Rights,
    Path,
    RqPsn,
    MinRnrTimer,
    SqPsn,
    Timeout,
}

/// Whose key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// A region's.
    Region(u8),
    /// A window's.
    Window(u8),
}

/// What is done to the key before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Key {
    /// As it is.
    #[default]
    Current,
    /// The one before: of the region or window that the slot had, or of the window's last binding.
    Stale,
    /// Another variant of the same index.
    Variant,
    /// 0.
    Zero,
    /// An index that nothing has.
    Unknown,
}

/// Local memory of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The region.
    pub region: u8,
    /// Its key.
    pub key: Key,
    /// First byte, counted from the start of the region.
    pub at: i64,
    /// Bytes.
    pub length: u32,
}

/// Remote memory of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// A region or a window.
    pub owner: Owner,
    /// Its key.
    pub key: Key,
    /// First byte, counted from the start of the region or of what the window was bound to.
    pub at: i64,
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What it does.
    pub op: Op,
    /// Its local memory.
    pub data: Data,
    /// It makes a completion.
    pub signaled: bool,
    /// It waits for the READs and atomics before it.
    pub fence: bool,
}

/// The local side of a work request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Data {
    /// Registered memory.
    Entries(Vec<Entry>),
    /// So many bytes with the work request.
    Inline(u32),
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the operations of `SendOp`, with names instead of keys")]
pub enum Op {
    Send,
    SendImm(u32),
    SendInv(Owner, Key),
    Write(Target),
    WriteImm(Target, u32),
    Read(Target),
    FetchAdd(Target, u64),
    CompareSwap(Target, u64, u64),
    Bind(Bind),
    LocalInv(Owner, Key),
}

/// A bind, of the window's own type unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The window.
    pub window: u8,
    /// Its present key.
    pub key: Key,
    /// Type 2: what is added to the variant of the present key.
    pub step: u8,
    /// As a window of the other type is bound.
    pub wrong_type: bool,
    /// The region.
    pub region: u8,
    /// The region's key.
    pub region_key: Key,
    /// First byte, counted from the start of the region.
    pub at: i64,
    /// Bytes.
    pub length: u64,
    /// Rights.
    #[serde(with = "words")]
    pub rights: Rights,
}

/// What a step or a work request is, for tables.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[allow(missing_docs, reason = "the names of verbs and operations")]
pub enum Kind {
    #[default]
    Register,
    Reregister,
    Deregister,
    Allocate,
    Free,
    Receive,
    Modify,
    Connect,
    Send,
    SendInv,
    Write,
    WriteImm,
    Read,
    Atomic,
    Bind1,
    Bind2,
    LocalInv,
    CleanUp,
}

impl Program {
    /// A line for each step.
    pub fn text(&self) -> String {
        let line = |step: &Step| serde_json::to_string(step).unwrap_or_default() + "\n";
        self.steps.iter().map(line).collect()
    }

    /// Reads what [`Program::text`] wrote. Empty lines and lines that begin with # are left out.
    ///
    /// # Errors
    /// The line that is no step, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let step = |(at, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {at} is no step: {error}"))
        };
        Ok(Self { steps: lines.map(step).collect::<Result<_, _>>()? })
    }
}

impl Step {
    /// What it is; of a post, which is what its work requests are, nothing.
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Self::Register(_) => Kind::Register,
            Self::Reregister { .. } => Kind::Reregister,
            Self::Deregister { .. } => Kind::Deregister,
            Self::Allocate { .. } => Kind::Allocate,
            Self::Free { .. } => Kind::Free,
            Self::Receive { .. } => Kind::Receive,
            Self::Modify { .. } => Kind::Modify,
            Self::Connect => Kind::Connect,
            Self::Post { .. } => return None,
        })
    }
}

impl Op {
    /// What it is; of a bind also whether it is one of type 2.
    pub fn kind(&self, type2: bool) -> Kind {
        match self {
            Self::Send | Self::SendImm(_) => Kind::Send,
            Self::SendInv(..) => Kind::SendInv,
            Self::Write(_) => Kind::Write,
            Self::WriteImm(..) => Kind::WriteImm,
            Self::Read(_) => Kind::Read,
            Self::FetchAdd(..) | Self::CompareSwap(..) => Kind::Atomic,
            Self::Bind(_) if type2 => Kind::Bind2,
            Self::Bind(_) => Kind::Bind1,
            Self::LocalInv(..) => Kind::LocalInv,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Rights as the names of their bits.
mod words {
    use super::Rights;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(rights: &Rights, to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        let _ = bitflags::parser::to_writer(rights, &mut text);
        text.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Rights, D::Error> {
        let text = String::deserialize(from)?;
        bitflags::parser::from_str(&text).map_err(|error| D::Error::custom(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_it_was_written() {
        let program = super::super::generate::program(7, super::super::offer::Offer::all());
        let text = format!("# a comment\n\n{program}");
        assert!(text.lines().count() > 5);
        assert_eq!(Program::parse(&text), Ok(program));
        let wrong = Program::parse("\"Connect\"\n{\"Free\":{}}\n").unwrap_err();
        assert!(wrong.starts_with("line 2 is no step: missing field"), "{wrong}");
    }
}
