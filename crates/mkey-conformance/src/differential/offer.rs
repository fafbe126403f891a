//! What programs may do on the devices at hand, and what they leave out over which, and why.

use mkey_core::device::Capabilities;

bitflags::bitflags! {
    /// What programs may do besides what all devices do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Offer: u8 {
        /// Register on-demand regions.
        const ON_DEMAND = 1;
        /// Re-register regions.
        const REREG = 2;
        /// Post a READ or an atomic that is fenced, or stands behind something fenced, and a bind
        /// behind a message.
        const BEHIND = 4;
        /// Invalidate type 2 windows that are not bound.
        const UNBOUND = 8;
    }
}

/// What programs leave out over a driver.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut {
    /// The driver.
    pub driver: &'static str,
    /// What is left out.
    pub what: Offer,
    /// The same in words.
    pub words: &'static str,
    /// What would come of it.
    pub why: &'static str,
}

/// All that is left out.
pub const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        driver: "rxe",
        what: Offer::ON_DEMAND,
        words: "on-demand regions",
        why: "`rxe_odp.c` copies from the start of the page and not from the offset in it, and \
              looks for a chosen I/O address among those of the program (R-ODP-02, R-REG-12)",
    },
    LeftOut {
        driver: "rxe",
        what: Offer::BEHIND,
        words: "READs and atomics that are fenced or behind something fenced, binds behind messages",
        why: "what is sent again, because there was no receive or because a timer ran out, waits \
              for ever: `req_retry` keeps what `rxe_wqe_is_fenced` counts as a READ or atomic under \
              way, be it the fenced request itself or one behind it; a bind among it is done twice \
              (`rxe_req.c`). A timer that a queue pair started before it was reset is enough: \
              `rxe_qp_reset` leaves it running, and `comp.timeout` set",
    },
    LeftOut {
        driver: "rxe",
        what: Offer::UNBOUND,
        words: "invalidations of type 2 windows that are not bound",
        why: "`rxe_do_invalidate_mw` follows the null pointers to queue pair and region, and the \
              kernel dies (R-INV-06)",
    },
];

impl Offer {
    /// What a device offers, without what is left out over its driver.
    pub fn of(device: &Capabilities) -> Self {
        let mut offer = Self::all();
        offer.set(Self::ON_DEMAND, device.odp.explicit);
        offer.set(Self::REREG, device.rereg);
        for left in LEFT_OUT.iter().filter(|left| left.driver == device.driver) {
            offer.remove(left.what);
        }
        offer
    }
}
