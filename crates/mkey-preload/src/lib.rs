//! libibverbs over software RNICs, for programs that know nothing of mkey.
//!
//! The library is loaded before libibverbs (`LD_PRELOAD`, as `mkey run` sets it). It has the functions
//! that are given or make an object, under the real names and versions. Devices of ours stand beside
//! real ones in the list; what belongs to a real one is handed on to the real library, which is loaded
//! behind this one.
//!
//! * `exports` has the functions, `symbols` their names and versions, `operations` what is behind inline
//!   functions, `dlopen` the way in for programs that load libibverbs by themselves.
//! * `objects` tells whose an object is, and survives programs that use what they have destroyed.
//! * `devices`, `context`, then a file to each kind of object.
//! * `structs`: the program's structures, of whatever headers. `boundary`: errno, and that no panic goes
//!   beyond it. `fork`: children. `report`: findings. `traced`: what `mkey trace` asks for.
//!
//! Nothing happens before a device is asked for: the library is loaded into every program that the one
//! meant starts.
//!
//! # Safety
//! C's rules hold at the boundary: a pointer is null, or points to what its type says. What a program
//! has destroyed is found out all the same, as the memory of objects is never freed.

mod acks;
mod ah;
mod attributes;
mod boundary;
mod channel;
mod context;
mod copy;
mod cq;
mod cq_ex;
mod devices;
mod dlopen;
mod dm;
mod exports;
mod file;
mod fork;
mod gids;
mod mr;
mod newer;
mod objects;
mod operations;
mod pd;
mod post;
mod qp;
mod qp_ex;
mod qp_state;
mod real;
mod report;
mod settings;
mod srq;
mod structs;
mod symbols;
mod traced;
mod turn;
mod xrcd;
