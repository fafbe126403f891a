//! The functions of the kernel that a registration runs through, by driver.
//!
//! Names change between kernels: of a stage with several names, those that the running kernel has
//! are probed, and versions say where a name is known from. Paths are those of Linux's source. The
//! chains of io_uring and rxe were seen to run on Linux 6.1 and 7.3; that of mlx5 is from reading.

use super::report::Term;

/// The call chain of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// What the driver's name begins with, or holds.
    pub drivers: &'static [&'static str],
    /// What to know of it.
    pub note: Option<&'static str>,
    /// From the outermost inwards.
    pub stages: &'static [Stage],
    /// Terms that such a device does not have, and why.
    pub absent: &'static [(Term, &'static str)],
}

/// A step of a call chain.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its name for people.
    pub name: &'static str,
    /// The term of the cost model that it counts to.
    pub term: Term,
    /// The functions that may be it.
    pub functions: &'static [Function],
    /// Where they are.
    pub source: &'static str,
}

/// A function by name, and the kernels that have it.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its symbol.
    pub name: &'static str,
    /// The first kernel known to have it; `None`: any.
    pub from: Option<(u32, u32)>,
    /// The first kernel known to lack it again; `None`: any has it.
    pub until: Option<(u32, u32)>,
}

const fn any(name: &'static str) -> Function {
    Function { name, from: None, until: None }
}

const fn from(name: &'static str, major: u32, minor: u32) -> Function {
    Function { name, from: Some((major, minor)), until: None }
}

const fn until(name: &'static str, major: u32, minor: u32) -> Function {
    Function { name, from: None, until: Some((major, minor)) }
}

impl Function {
    /// Whether a kernel of this version may have it.
    pub fn in_kernel(&self, version: (u32, u32)) -> bool {
        self.from.is_none_or(|from| version >= from) && self.until.is_none_or(|end| version < end)
    }
}

const UVERBS: Stage = Stage {
    name: "uverbs entry",
    term: Term::Syscall,
    functions: &[any("ib_uverbs_reg_mr"), any("ib_uverbs_handler_UVERBS_METHOD_REG_MR")],
    source: "drivers/infiniband/core/uverbs_cmd.c, uverbs_std_types_mr.c",
};

const UMEM: Stage = Stage {
    name: "ib_umem_get",
    term: Term::Pin,
    // Linux 7.3 has the latter two, one within the other, in place of the first.
    functions: &[any("ib_umem_get"), any("ib_umem_get_attr_or_va"), any("ib_umem_get_desc")],
    source: "drivers/infiniband/core/umem.c",
};

const PIN: Stage = Stage {
    name: "pin pages",
    term: Term::Pin,
    functions: &[from("pin_user_pages_fast", 5, 6)],
    source: "mm/gup.c",
};

const LIST: Stage = Stage {
    name: "scatter list",
    term: Term::Pin,
    functions: &[
        from("sg_alloc_append_table_from_pages", 5, 15),
        until("__sg_alloc_table_from_pages", 5, 15),
    ],
    source: "lib/scatterlist.c",
};

const DMA: Stage = Stage {
    name: "DMA map",
    term: Term::Map,
    functions: &[from("dma_map_sgtable", 5, 8), from("ib_dma_virt_map_sg", 5, 11)],
    source: "kernel/dma/mapping.c, drivers/infiniband/core/device.c",
};

const IOMMU: Stage = Stage {
    name: "IOMMU map",
    term: Term::Map,
    functions: &[any("iommu_dma_map_sg")],
    source: "drivers/iommu/dma-iommu.c",
};

const ANY: Chain = Chain {
    name: "any kernel device (no functions of its driver known)",
    drivers: &[],
    note: Some("the driver's table and the device command are within the uverbs entry"),
    stages: &[UVERBS, UMEM, PIN, LIST, DMA, IOMMU],
    absent: &[],
};

/// The chains, the general one last.
pub const CHAINS: &[Chain] = &[
    Chain {
        name: "io_uring (the software RNIC's pin)",
        drivers: &["mkey software"],
        note: Some("the kernel's part; the device's tables are in this process, outside of it"),
        stages: &[
            Stage {
                name: "io_uring_register",
                term: Term::Syscall,
                functions: &[
                    any("__x64_sys_io_uring_register"),
                    any("__arm64_sys_io_uring_register"),
                ],
                source: "io_uring/register.c (to 6.7 io_uring/io_uring.c)",
            },
            Stage {
                name: "resource update",
                term: Term::Syscall,
                functions: &[from("io_register_rsrc_update", 5, 13)],
                source: "io_uring/rsrc.c",
            },
            Stage {
                name: "io_sqe_buffer_register",
                term: Term::Pin,
                functions: &[from("io_sqe_buffer_register", 5, 13)],
                source: "io_uring/rsrc.c",
            },
            Stage {
                name: "io_pin_pages",
                term: Term::Pin,
                functions: &[from("io_pin_pages", 5, 19)],
                source: "io_uring/rsrc.c (from 6.10 io_uring/memmap.c)",
            },
            Stage {
                name: "pin pages",
                term: Term::Pin,
                functions: &[from("pin_user_pages_fast", 5, 6), from("pin_user_pages", 5, 6)],
                source: "mm/gup.c",
            },
        ],
        absent: &[
            (Term::Map, "the software RNIC maps nothing for DMA"),
            (Term::Command, "the software RNIC has no firmware"),
        ],
    },
    Chain {
        name: "rxe (soft-RoCE)",
        drivers: &["rxe", "rdma_rxe"],
        note: None,
        stages: &[
            UVERBS,
            Stage {
                name: "driver's verb",
                term: Term::Table,
                functions: &[any("rxe_reg_user_mr")],
                source: "drivers/infiniband/sw/rxe/rxe_verbs.c",
            },
            Stage {
                name: "driver's region",
                term: Term::Table,
                functions: &[any("rxe_mr_init_user")],
                source: "drivers/infiniband/sw/rxe/rxe_mr.c",
            },
            UMEM,
            PIN,
            LIST,
            DMA,
            Stage {
                name: "driver's table",
                term: Term::Table,
                // Before 6.3 the table is written in the driver's region, and so it is where the
                // compiler has put this function into it.
                functions: &[from("rxe_mr_fill_pages_from_sgt", 6, 3)],
                source: "drivers/infiniband/sw/rxe/rxe_mr.c",
            },
        ],
        absent: &[(Term::Command, "soft-RoCE has no firmware")],
    },
    Chain {
        name: "mlx5 (ConnectX)",
        drivers: &["mlx5"],
        note: Some("not run on hardware"),
        stages: &[
            UVERBS,
            Stage {
                name: "driver's verb",
                term: Term::Table,
                functions: &[any("mlx5_ib_reg_user_mr")],
                source: "drivers/infiniband/hw/mlx5/mr.c",
            },
            UMEM,
            PIN,
            LIST,
            DMA,
            IOMMU,
            Stage {
                name: "driver's table",
                term: Term::Table,
                functions: &[
                    from("mlx5r_umr_update_mr_pas", 5, 19),
                    until("mlx5_ib_update_mr_pas", 5, 19),
                    until("mlx5_ib_update_xlt", 5, 19),
                ],
                source: "drivers/infiniband/hw/mlx5/umr.c (to 5.18 mr.c)",
            },
            Stage {
                name: "work request of the table",
                term: Term::Command,
                functions: &[from("mlx5r_umr_post_send_wait", 5, 19)],
                source: "drivers/infiniband/hw/mlx5/umr.c",
            },
            Stage {
                name: "new key",
                term: Term::Command,
                functions: &[any("mlx5_core_create_mkey")],
                source: "drivers/net/ethernet/mellanox/mlx5/core/mr.c",
            },
            Stage {
                name: "firmware command",
                term: Term::Command,
                functions: &[any("mlx5_cmd_exec")],
                source: "drivers/net/ethernet/mellanox/mlx5/core/cmd.c",
            },
        ],
        absent: &[],
    },
    ANY,
];

/// The chain of a driver: the general one for those that are not known.
pub fn of(driver: &str) -> &'static Chain {
    let known = |chain: &&Chain| chain.drivers.iter().any(|name| driver.contains(name));
    CHAINS.iter().find(known).unwrap_or(&ANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn drivers_find_their_chain() {
        for (driver, name) in [
            ("mkey software RNIC", "io_uring"),
            ("rxe", "rxe"),
            ("mlx5", "mlx5"),
            ("mlx5_core", "mlx5"),
            ("irdma", "any kernel device"),
        ] {
            assert!(of(driver).name.starts_with(name), "{driver}");
        }
    }

    #[test]
    fn functions_of_a_chain_differ_and_have_a_source() {
        for chain in CHAINS {
            let names: Vec<_> =
                chain.stages.iter().flat_map(|stage| stage.functions).map(|f| f.name).collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", chain.name);
            assert!(chain.stages.iter().all(|stage| stage.source.contains(".c")));
        }
        assert_eq!(of("mlx5").note, Some("not run on hardware"));
    }
}
