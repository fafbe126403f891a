//! Call stacks from what was copied of them: registers and the top of the stack.

use super::symbols::{Code, Files};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind,
    UnwindRegsNative, Unwinder as _, UnwinderNative,
};
use mkey_trace::format::Frame;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Frames of a stack, at most.
const MOST_FRAMES: usize = 256;

/// A file whose code was mapped.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// What is added to the file's own addresses.
    pub bias: u64,
    /// Where its code was.
    pub range: Range<u64>,
}

/// Registers and the top of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// Instruction, stack and frame pointer, link register.
    pub ip: u64,
    /// See `ip`.
    pub sp: u64,
    /// See `ip`.
    pub fp: u64,
    /// See `ip`.
    pub lr: u64,
    /// What was at `sp`.
    pub bytes: &'a [u8],
}

/// Unwinds stacks of one process, while the same files were mapped.
pub struct Unwinder {
    modules: Vec<Mapped>,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

struct Mapped {
    range: Range<u64>,
    bias: u64,
    code: Rc<Code>,
}

impl Unwinder {
    /// With these mapped.
    pub fn new<'a>(files: &Files, modules: impl Iterator<Item = Module<'a>>) -> Self {
        let mut all = Vec::new();
        let mut unwinder = UnwinderNative::new();
        for module in modules.filter(|module| !module.range.is_empty()) {
            let code = files.code(module.path);
            if let Some(sections) = sections(&code, &module) {
                unwinder.add_module(sections);
            }
            all.push(Mapped { range: module.range, bias: module.bias, code });
        }
        all.sort_by_key(|mapped| mapped.range.start);
        Self { modules: all, unwinder, cache: CacheNative::new() }
    }

    /// The frames of a stack, innermost first, without those of mkey and of the verb; and whether there were more than
    /// could be followed: its end is where the program, or a thread of it, began.
    pub fn frames(&mut self, stack: &Copied<'_>) -> (Vec<Frame>, bool) {
        let (addresses, mut cut) = self.addresses(stack);
        let mut frames = Vec::new();
        for address in addresses {
            match self.mapped(address) {
                Some(mapped) if mapped.code.is_ours() => {}
                Some(mapped) => {
                    let offset = address.wrapping_sub(mapped.bias);
                    frames.extend(mapped.code.frames(offset).iter().cloned());
                }
                // Code that is in no file, as of just-in-time compilers.
                None => frames.push(Frame { module: "?".to_owned(), ..Frame::default() }),
            }
        }
        // The verb itself, as far as it is inline.
        let in_header = |frame: &Frame| {
            frame.file.as_deref().is_some_and(|file| file.ends_with("/infiniband/verbs.h"))
        };
        let verbs = frames.iter().take_while(|frame| in_header(frame)).count();
        frames.drain(..verbs);
        // What led nowhere was no code.
        while frames.last().is_some_and(|frame| frame.module == "?") {
            frames.pop();
            cut = true;
        }
        if frames.len() > MOST_FRAMES {
            frames.truncate(MOST_FRAMES);
            cut = true;
        }
        (frames, cut)
    }

    /// The addresses of the code, of calls: an address within the instruction.
    fn addresses(&mut self, stack: &Copied<'_>) -> (Vec<u64>, bool) {
        let mut read = |at: u64| {
            let offset = at.checked_sub(stack.sp).and_then(|offset| usize::try_from(offset).ok());
            let end = offset.and_then(|offset| offset.checked_add(8)).ok_or(())?;
            let word = stack.bytes.get(end - 8..end).ok_or(())?;
            word.try_into().map(u64::from_ne_bytes).map_err(|_| ())
        };
        let mut addresses = Vec::new();
        let mut frames =
            self.unwinder.iter_frames(stack.ip, registers(stack), &mut self.cache, &mut read);
        let mut unknown = 0;
        loop {
            match frames.next() {
                Ok(Some(frame)) => {
                    let address = frame.address_for_lookup();
                    let is_code = find(&self.modules, address).is_some();
                    unknown = if is_code { 0 } else { unknown + 1 };
                    if addresses.len() > MOST_FRAMES || unknown > 8 {
                        return (addresses, true);
                    }
                    debug_assert!(
                        !addresses.is_empty()
                            || frame == FrameAddress::InstructionPointer(stack.ip)
                    );
                    addresses.push(address);
                }
                Ok(None) => return (addresses, false),
                Err(_) => return (addresses, true),
            }
        }
    }

    fn mapped(&self, address: u64) -> Option<&Mapped> {
        find(&self.modules, address)
    }
}

fn find(modules: &[Mapped], address: u64) -> Option<&Mapped> {
    let after = modules.partition_point(|mapped| mapped.range.start <= address);
    modules.get(after.checked_sub(1)?).filter(|mapped| mapped.range.contains(&address))
}

#[cfg(target_arch = "x86_64")]
fn registers(stack: &Copied<'_>) -> UnwindRegsNative {
    UnwindRegsNative::new(stack.ip, stack.sp, stack.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers(stack: &Copied<'_>) -> UnwindRegsNative {
    // User addresses have at most 48 bits; above them pointers are signed.
    let mask = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
    UnwindRegsNative::new_with_ptr_auth_mask(mask, stack.lr, stack.sp, stack.fp)
}

/// As the unwinder takes it; `None` if the file tells nothing, or is not where it says.
fn sections(code: &Code, module: &Module<'_>) -> Option<framehop::Module<Arc<[u8]>>> {
    let unwind = &code.unwind;
    let base = module.bias.wrapping_add(unwind.base);
    // Relative addresses have 32 bits.
    if base > module.range.start || module.range.end - base > u64::from(u32::MAX) {
        return None;
    }
    let range = |(at, bytes): &(u64, Arc<[u8]>)| Some(*at..at.checked_add(bytes.len() as u64)?);
    let bytes = |section: &Option<(u64, Arc<[u8]>)>| section.as_ref().map(|(_, b)| Arc::clone(b));
    let info = ExplicitModuleSectionInfo {
        base_svma: unwind.base,
        text_svma: unwind.text.map(|(start, end)| start..end),
        got_svma: unwind.got.map(|(start, end)| start..end),
        eh_frame_svma: unwind.eh_frame.as_ref().and_then(range),
        eh_frame: bytes(&unwind.eh_frame),
        eh_frame_hdr_svma: unwind.eh_frame_hdr.as_ref().and_then(range),
        eh_frame_hdr: bytes(&unwind.eh_frame_hdr),
        debug_frame: bytes(&unwind.debug_frame),
        ..Default::default()
    };
    Some(framehop::Module::new(code.name.clone(), module.range.clone(), base, info))
}

#[cfg(test)]
mod tests;
