//! The devices that programs find.

use crate::boundary::{Errno, Verb};
use crate::real;
use crate::settings::settings;
use mkey_sys::types::*;
use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::ptr;
use std::sync::OnceLock;

/// A software RNIC as it is listed. It lives as long as the process, whatever list it was found in.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Listed {
    base: ibv_device,
    /// Drivers look behind the device, where theirs have operations, to see whether it is one of theirs.
    _of_no_driver: [usize; 32],
    pub(crate) text: String,
    /// In host order.
    pub(crate) guid: u64,
}

// SAFETY: never written once it is made; the verbs only read its fields.
unsafe impl Sync for Listed {}
// SAFETY: as above.
unsafe impl Send for Listed {}

/// The devices, made when they are first asked for.
pub(crate) fn ours() -> &'static [Listed] {
    OURS.get_or_init(|| {
        let settings = settings();
        (0..settings.devices).map(|index| Listed::new(index, settings.address)).collect()
    })
}

static OURS: OnceLock<Box<[Listed]>> = OnceLock::new();

/// Whether a device is one of ours.
#[inline]
pub(crate) fn is_ours(device: *const ibv_device) -> bool {
    find(device).is_some()
}

/// The device, if it is one of ours.
#[inline]
pub(crate) fn find(device: *const ibv_device) -> Option<&'static Listed> {
    OURS.get()?.iter().find(|ours| ptr::eq(&ours.base, device))
}

impl Listed {
    fn new(index: u8, address: IpAddr) -> Self {
        let name = format!("mkey{index}");
        let mut base: ibv_device = bytemuck::Zeroable::zeroed();
        (base.node_type, base.transport_type) = (IBV_NODE_CA, IBV_TRANSPORT_IB);
        copy(&mut base.name, &name);
        copy(&mut base.dev_name, &name);
        // There is no such folder, and the programs that look for it do without.
        copy(&mut base.dev_path, &format!("/sys/class/infiniband_verbs/{name}"));
        copy(&mut base.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        Self { base, _of_no_driver: [0; 32], text: name, guid: guid(index, address) }
    }

    pub(crate) fn base(&'static self) -> *mut ibv_device {
        (&raw const self.base).cast_mut()
    }

    /// Its name, as C has it.
    pub(crate) fn name(&'static self) -> *const c_char {
        self.base.name.as_ptr()
    }
}

/// Never 0, and another one for each device and address; of the kind that nobody else gives out.
fn guid(index: u8, address: IpAddr) -> u64 {
    const LOCAL: u64 = 0x02 << 56;
    let host = match address {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        IpAddr::V6(v6) => {
            let (high, low) = ((u128::from(v6) >> 64) as u64, u128::from(v6) as u64);
            (high ^ low.rotate_left(17)) & 0xff_ffff_ffff
        }
    };
    LOCAL | u64::from(index) << 40 | host
}

fn copy<const N: usize>(place: &mut [c_char; N], text: &str) {
    // The last byte stays 0.
    for (byte, value) in place.iter_mut().take(N - 1).zip(text.bytes()) {
        *byte = value as c_char;
    }
}

/// `ibv_get_device_list`: ours, then the real ones. Before the first entry lies the real library's
/// own list, if there is one.
pub(crate) fn list(count: *mut c_int) -> Verb<*mut *mut ibv_device> {
    let ours = ours();
    let mut real_count = 0;
    let real_list = match real::verbs().filter(|_| !settings().only) {
        // SAFETY: it writes the number of entries.
        Some(real) => unsafe { real.ibv_get_device_list(&mut real_count) },
        None => ptr::null_mut(),
    };
    let real_count = if real_list.is_null() { 0 } else { usize::try_from(real_count).unwrap_or(0) };
    let places = ours.len() + real_count + 2;
    // SAFETY: no more than memory of that size, all zeros.
    let list = unsafe { libc::calloc(places, size_of::<*mut ibv_device>()) };
    let list = list.cast::<*mut ibv_device>();
    if list.is_null() {
        if let Some(real) = real::verbs()
            && !real_list.is_null()
        {
            // SAFETY: it is the list that the library gave.
            unsafe { real.ibv_free_device_list(real_list) };
        }
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: the list has `places` places: one for the real list, one for each device, one for the
    // null at the end. The real list has `real_count` entries.
    unsafe {
        list.write(real_list.cast());
        let entries = list.add(1);
        for (index, device) in ours.iter().enumerate() {
            entries.add(index).write(device.base());
        }
        for index in 0..real_count {
            entries.add(ours.len() + index).write(real_list.add(index).read());
        }
        if !count.is_null() {
            count.write((ours.len() + real_count) as c_int);
        }
        Ok(entries)
    }
}

/// `ibv_free_device_list`.
///
/// # Safety
/// It is null or was answered by [`list`] and not freed yet.
pub(crate) unsafe fn free(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    // SAFETY: the caller's: the allocation begins one place before, with the real list.
    unsafe {
        let start = list.sub(1);
        let real_list = start.read().cast::<*mut ibv_device>();
        if let Some(real) = real::verbs()
            && !real_list.is_null()
        {
            real.ibv_free_device_list(real_list);
        }
        libc::free(start.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// libibverbs' own structure of a device goes on with the driver's operations.
    #[test]
    fn a_device_is_no_driver_s() {
        let listed = Box::leak(Box::new(Listed::new(0, settings().address)));
        let behind = offset_of!(Listed, text) - size_of::<ibv_device>();
        assert!(offset_of!(Listed, base) == 0 && behind >= 128, "{behind}");
        let words = listed.base().wrapping_add(1).cast::<usize>();
        // SAFETY: within the structure.
        assert!((0..behind / 8).all(|index| unsafe { words.add(index).read() } == 0));
    }
}
