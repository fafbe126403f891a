//! The SIGSEGV and SIGBUS handler: resumes the tolerant routines, hands everything else on.
//!
//! On the path of a tolerant routine the handler calls nothing and so keeps `errno`; it is
//! async-signal-safe. Every other fault goes to the action that was installed before, in the form
//! that action asked for; the default action and "ignore" are carried out as the kernel would.

use super::asm::{self, FAULTED, HAS_ADDRESS, ON_WRITE};
use std::io;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The two signals by which Linux reports an access that memory did not allow.
pub(super) const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The action that was there before, per signal of [`SIGNALS`]. A stored action is never freed:
/// a handler on another thread may be reading it.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 2] =
    [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())];
static INSTALLED: AtomicBool = AtomicBool::new(false);
static INSTALLING: Mutex<()> = Mutex::new(());

/// Installs the handler once per process; later calls only look.
pub(super) fn install() -> io::Result<()> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    let _guard = INSTALLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let before = current_action(signal)?;
        // The previous action must be readable before the first signal can arrive.
        previous.store(Box::into_raw(Box::new(before)), Ordering::Release);
        let mut ours = before;
        ours.sa_sigaction = on_signal as *const () as usize;
        // The previous handler finds the mask and the re-entrancy it asked for. The alternate
        // stack is used where a thread has one: handlers for stack overflow need it.
        ours.sa_flags = libc::SA_SIGINFO
            | libc::SA_ONSTACK
            | (before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
        set_action(signal, &ours)?;
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// The first of the two signals whose action is no longer ours, if [`install`] has run.
pub(super) fn displaced() -> Option<libc::c_int> {
    if !INSTALLED.load(Ordering::Acquire) {
        return None;
    }
    SIGNALS.into_iter().find(|&signal| {
        current_action(signal)
            .is_ok_and(|action| action.sa_sigaction != on_signal as *const () as usize)
    })
}

/// Replaces the action that faults outside the tolerant routines are handed to.
pub(super) fn exchange_previous(
    signal: libc::c_int,
    action: libc::sigaction,
) -> Option<libc::sigaction> {
    let slot = SIGNALS.iter().position(|&s| s == signal).and_then(|i| PREVIOUS.get(i))?;
    let _guard = INSTALLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let old = slot.swap(Box::into_raw(Box::new(action)), Ordering::AcqRel);
    // SAFETY: a stored pointer comes from Box::into_raw and is never freed.
    (!old.is_null()).then(|| unsafe { *old })
}

fn current_action(signal: libc::c_int) -> io::Result<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid value of the C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only reads; `action` outlives the call.
    if unsafe { libc::sigaction(signal, ptr::null(), &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(action)
}

fn set_action(signal: libc::c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `action` holds either an action read from the kernel or our handler, whose
    // signature matches SA_SIGINFO.
    if unsafe { libc::sigaction(signal, action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a ucontext_t and a siginfo_t to a SA_SIGINFO handler; both live
    // until the handler returns, and only this thread uses them.
    let (registers, info_ref) =
        unsafe { (&mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs, &*info) };
    let ip = registers[libc::REG_RIP as usize] as usize;
    // Only the kernel reports positive codes; a signal sent by a process is not our fault even
    // if it arrives while a tolerant routine runs.
    if info_ref.si_code > 0 && asm::may_fault(ip) {
        const PAGE_FAULT: i64 = 14;
        const ERROR_WRITE: i64 = 2;
        let mut flags = FAULTED;
        let mut address = 0;
        if info_ref.si_code != libc::SI_KERNEL {
            // SAFETY: for SIGSEGV and SIGBUS with a kernel code the union holds the address.
            address = unsafe { info_ref.si_addr() } as usize;
            flags |= HAS_ADDRESS;
        }
        if registers[libc::REG_TRAPNO as usize] == PAGE_FAULT
            && registers[libc::REG_ERR as usize] & ERROR_WRITE != 0
        {
            flags |= ON_WRITE;
        }
        if asm::counts(ip) {
            registers[libc::REG_RCX as usize] = registers[libc::REG_RDX as usize];
        }
        registers[libc::REG_RDX as usize] = address as i64;
        registers[libc::REG_R9 as usize] = flags as i64;
        registers[libc::REG_RIP as usize] = asm::resume_address() as i64;
        return;
    }
    hand_on(signal, info, context, info_ref.si_code > 0);
}

/// Does with the signal what the previous action would have done.
fn hand_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    from_kernel: bool,
) {
    let slot = &PREVIOUS[usize::from(signal != libc::SIGSEGV)];
    let stored = slot.load(Ordering::Acquire);
    if stored.is_null() {
        die_by_default(signal, from_kernel);
        return;
    }
    // SAFETY: a stored pointer comes from Box::into_raw and is never freed.
    let previous = unsafe { &*stored };
    match previous.sa_sigaction {
        libc::SIG_DFL => die_by_default(signal, from_kernel),
        // The kernel does not let a program ignore a fault of its own.
        libc::SIG_IGN if from_kernel => die_by_default(signal, from_kernel),
        libc::SIG_IGN => {}
        handler => {
            if previous.sa_flags & libc::SA_RESETHAND != 0 {
                slot.store(ptr::null_mut(), Ordering::Release);
            }
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the program registered this address with SA_SIGINFO, so it has this
                // signature.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: the program registered this address without SA_SIGINFO, so it has this
                // signature.
                let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
    }
}

/// Restores the default action; the fault repeats under it when the handler returns, so that the
/// core dump shows the faulting instruction. A signal that was sent does not repeat by itself.
fn die_by_default(signal: libc::c_int, from_kernel: bool) {
    // SAFETY: an all-zero sigaction is SIG_DFL without flags; sigaction and raise are
    // async-signal-safe.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, ptr::null_mut());
        if !from_kernel {
            libc::raise(signal);
        }
    }
}
