//! The programs, the options of each, and what is expected.

/// A program, and how it is run.
pub struct Program {
    pub name: &'static str,
    /// Of every run of it.
    pub always: &'static str,
    pub runs: &'static [Run],
}

/// One run: both sides have these options.
pub struct Run {
    pub options: &'static str,
    pub expected: Expected,
}

/// What becomes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Both sides end well.
    Works,
    /// The program itself declines, whatever the device: both sides end, with these words.
    Declines(&'static str),
}

const fn works(options: &'static str) -> Run {
    Run { options, expected: Expected::Works }
}

const fn declines(options: &'static str, words: &'static str) -> Run {
    Run { options, expected: Expected::Declines(words) }
}

impl Program {
    /// Whether the device itself mends what is lost on the way.
    pub fn is_reliable(&self, run: &Run) -> bool {
        let unreliable = ["UC", "UD"];
        let arguments = self.arguments(run);
        !unreliable.iter().any(|kind| arguments.contains(kind))
            && !["ibv_uc_pingpong", "ibv_ud_pingpong"].contains(&self.name)
    }

    /// The arguments of a run. A later option counts where one is given twice.
    pub fn arguments(&self, run: &Run) -> Vec<&'static str> {
        [self.always, run.options].iter().flat_map(|words| words.split_whitespace()).collect()
    }
}

/// The examples of libibverbs. An Ethernet port wants a GID index.
pub const PING_PONG: &[Program] = &[
    Program {
        name: "ibv_rc_pingpong",
        always: "-g 0",
        runs: &[
            works(""),
            works("-c"),
            works("-e -c"),
            works("-o -c"),
            works("-O -c"),
            works("-o -P -c"),
            works("-j -c"),
            works("-t"),
            works("-N -c"),
            works("-N -e -o -c"),
            works("-c -m 4096 -s 1000000 -n 20"),
            declines("-P", "prefetch is valid only with on-demand memory region"),
        ],
    },
    Program {
        name: "ibv_uc_pingpong",
        always: "-g 0",
        runs: &[works(""), works("-c"), works("-e -c"), works("-c -m 4096 -s 1000000 -n 20")],
    },
    Program {
        name: "ibv_ud_pingpong",
        always: "-g 0",
        runs: &[works(""), works("-c"), works("-e -c"), works("-c -s 1024")],
    },
    Program {
        name: "ibv_srq_pingpong",
        always: "-g 0",
        runs: &[works(""), works("-c"), works("-e -c"), works("-o -c"), works("-q 3 -e -c")],
    },
    Program {
        name: "ibv_xsrq_pingpong",
        always: "-g 0",
        runs: &[works(""), works("-e"), works("-o"), works("-e -o"), works("-s 100000")],
    },
];

/// The programs of perftest that measure throughput.
pub const THROUGHPUT: &[Program] = &[
    Program {
        name: "ib_write_bw",
        always: "-n 200",
        runs: &[
            works(""),
            works("-a -n 20"),
            works("-b"),
            works("-q 8"),
            works("-q 8 --mr_per_qp"),
            works("--odp"),
            works("--use_hugepages"),
            works("-D 1"),
            works("-c UC"),
            works("-c UC -a -n 20"),
            works("-c UC -b"),
            works("-c UC -q 8"),
            works("-c XRC"),
        ],
    },
    Program {
        name: "ib_read_bw",
        always: "-n 200",
        runs: &[
            works(""),
            works("-a -n 20"),
            works("-b"),
            works("-q 8"),
            works("-q 8 --mr_per_qp"),
            works("--odp"),
            works("--use_hugepages"),
            works("-e"),
            works("-c XRC"),
        ],
    },
    Program {
        name: "ib_send_bw",
        always: "-n 200",
        runs: &[
            works(""),
            works("-a -n 20"),
            works("-b"),
            works("-q 8"),
            works("-q 8 --mr_per_qp"),
            works("--odp"),
            works("--use_hugepages"),
            works("--use-srq"),
            works("-e"),
            works("-c UC"),
            works("-c UC -a -n 20"),
            works("-c UC -b"),
            works("-c UC -q 8"),
            works("-c UC -e"),
            works("-c UD"),
            works("-c UD -a -n 20"),
            works("-c UD -b"),
            works("-c UD -q 8"),
            works("-c UD -e"),
            works("-c XRC"),
        ],
    },
    Program {
        name: "ib_atomic_bw",
        always: "-n 200",
        runs: &[
            works(""),
            works("-A CMP_AND_SWAP"),
            works("-b"),
            works("-q 8"),
            works("-q 8 --mr_per_qp"),
            works("--use_hugepages"),
            works("-e"),
            works("-c XRC"),
            declines("--odp", "ODP does not support ATOMICS for now"),
        ],
    },
];

/// Those that measure latency.
pub const LATENCY: &[Program] = &[
    Program {
        name: "ib_write_lat",
        always: "-n 100",
        runs: &[
            works(""),
            works("-a -n 5"),
            works("-I 64"),
            works("--odp"),
            works("--use_hugepages"),
            works("-c UC"),
            works("-c UC -a -n 5"),
            works("-c XRC"),
        ],
    },
    Program {
        name: "ib_read_lat",
        always: "-n 100",
        runs: &[
            works(""),
            works("-a -n 5"),
            works("--odp"),
            works("--use_hugepages"),
            works("-e"),
            works("-c XRC"),
        ],
    },
    Program {
        name: "ib_send_lat",
        always: "-n 100",
        runs: &[
            works(""),
            works("-a -n 5"),
            works("-I 64"),
            works("--odp"),
            works("--use_hugepages"),
            works("--use-srq"),
            works("-e"),
            works("-c UC"),
            works("-c UC -a -n 5"),
            works("-c UC -e"),
            works("-c UD"),
            works("-c UD -a -n 5"),
            works("-c UD -e"),
            works("-c XRC"),
        ],
    },
    Program {
        name: "ib_atomic_lat",
        always: "-n 100",
        runs: &[
            works(""),
            works("-A CMP_AND_SWAP"),
            works("--use_hugepages"),
            works("-e"),
            works("-c XRC"),
            declines("--odp", "ODP does not support ATOMICS for now"),
        ],
    },
];
