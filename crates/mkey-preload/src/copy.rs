//! Reading the program's memory where it names an address that may be wrong.

use crate::boundary::{Errno, Verb};
use mkey_os::copy::{Installed, install};
use std::sync::OnceLock;

/// Reads bytes of the program; EFAULT if they can not be read.
///
/// # Safety
/// As for [`Installed::read`]: nobody writes them meanwhile but the program.
pub(crate) unsafe fn from_program(into: &mut [u8], from: *const u8) -> Verb<()> {
    static TOLERANT: OnceLock<Option<Installed>> = OnceLock::new();
    let fault = Errno(libc::EFAULT);
    // The device was opened, so the handler is there.
    let tolerant = TOLERANT.get_or_init(|| install().ok()).ok_or(fault)?;
    // SAFETY: the caller's.
    unsafe { tolerant.read(into, from) }.map_err(|_| fault)
}
