//! What this crate declares of the C interface, as data.
//!
//! The types are declared through one macro, which writes the Rust type and its row in the same
//! stroke: a field cannot be in one and not in the other. The test `abi` hands the rows to a C
//! compiler together with the distribution's headers, which compares sizes, offsets, types and
//! values.

/// The declarations of one file.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The file's module, as [`module_path!`] gives it.
    pub module: &'static str,
    /// Structures of which only the name is known, without `struct`.
    pub opaque: &'static [&'static str],
    /// Structures.
    pub structs: &'static [Record],
    /// Unions.
    pub unions: &'static [Record],
    /// Enumerations.
    pub enums: &'static [Enum],
    /// Constants that stand alone: the bits of masks.
    pub constants: &'static [Constant],
}

/// A structure or a union.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The name here.
    pub name: &'static str,
    /// The type's name in C, such as `struct ibv_sge`.
    pub c: &'static str,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
    /// Whether later libraries may have more fields than are declared here.
    pub grows: Grows,
    /// The fields, in order.
    pub fields: &'static [Field],
}

/// A field of a structure or a union.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    /// The type, as Rust source.
    pub ty: &'static str,
    /// Bytes from the start.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

impl Field {
    #[doc(hidden)]
    pub const fn new(name: &'static str, ty: &'static str, offset: usize, size: usize) -> Self {
        Self { name, ty, offset, size }
    }

    /// The name in C.
    pub fn name(&self) -> &'static str {
        self.name.strip_prefix("r#").unwrap_or(self.name)
    }
}

/// Where later libraries add fields to a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// Nowhere: the structure is what it is.
    No,
    /// At its end.
    Down,
    /// At its start. Its last field is found at a fixed place, the others by their distance to it.
    Up,
}

/// An enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Enum {
    /// The name, in C with `enum` before it.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Whether it has negative values.
    pub signed: bool,
    /// Its values.
    pub constants: &'static [Constant],
}

/// A constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: i128,
}

/// A function that a library exports.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The symbol version that is bound.
    pub version: &'static str,
    /// The first rdma-core with it, if a library without it is usable all the same.
    pub needs: Option<u16>,
    /// The types of the arguments, as Rust source.
    pub args: &'static [&'static str],
    /// The type of the result, as Rust source; empty for none.
    pub result: &'static str,
}

/// Every table: one per file of types.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    crate::types::TABLES.iter().chain(crate::mlx5dv::TABLES)
}

/// The functions of libibverbs.
pub fn verbs_functions() -> &'static [Function] {
    crate::verbs::FUNCTIONS
}

/// The functions of libmlx5.
pub fn mlx5_functions() -> &'static [Function] {
    crate::mlx5::FUNCTIONS
}

/// Declares C types and constants, and `TABLE`, which lists them.
///
/// The sections are all optional, in this order. `= "..."` gives the C name of a type that has no
/// name of its own in C; `@ grows` and `@ grows_up` are [`Grows`].
macro_rules! abi {
    (
        $(opaque { $($opaque:ident;)* })?
        $(structs { $(
            $(#[$smeta:meta])*
            $sname:ident $(= $sc:literal)? $(@ $grows:ident)? {
                $($sfield:ident: $sty:ty),* $(,)?
            }
        )* })?
        $(unions { $(
            $(#[$umeta:meta])*
            $uname:ident $(= $uc:literal)? { $($ufield:ident: $uty:ty),* $(,)? }
        )* })?
        $(enums { $(
            $(#[$emeta:meta])*
            $ename:ident: $erepr:ident { $($ekey:ident = $evalue:expr),* $(,)? }
        )* })?
        $(constants { $(
            $ctype:ident { $($ckey:ident = $cvalue:expr),* $(,)? }
        )* })?
    ) => {
        $($(
            #[doc = concat!("`struct ", stringify!($opaque), "`, only ever pointed to.")]
            #[repr(C)]
            #[derive(Debug)]
            pub struct $opaque {
                _data: [u8; 0],
                _neither_sent_nor_moved:
                    core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
            }
        )*)?

        $($(
            #[doc = concat!("`", abi!(@c "struct" $sname $($sc)?), "`")]
            $(#[$smeta])*
            #[allow(missing_docs, reason = "the verbs' own names, explained in their manual")]
            #[repr(C)]
            pub struct $sname {
                $(pub $sfield: $sty,)*
            }

            abi!(@zeroable $sname $($sty)*);
        )*)?

        $($(
            #[doc = concat!("`", abi!(@c "union" $uname $($uc)?), "`")]
            $(#[$umeta])*
            #[allow(missing_docs, reason = "the verbs' own names, explained in their manual")]
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub union $uname {
                $(pub $ufield: $uty,)*
            }

            impl core::fmt::Debug for $uname {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.debug_struct(stringify!($uname)).finish_non_exhaustive()
                }
            }

            abi!(@zeroable $uname $($uty)*);
        )*)?

        $($(
            #[doc = concat!("`enum ", stringify!($ename), "`; any value may come from a library.")]
            $(#[$emeta])*
            #[repr(transparent)]
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $ename(pub $erepr);

            $(
                #[allow(missing_docs, reason = "the verbs' own names, explained in their manual")]
                pub const $ekey: $ename = $ename($evalue);
            )*

            impl core::fmt::Debug for $ename {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    match *self {
                        $($ekey => f.write_str(stringify!($ekey)),)*
                        Self(other) => write!(f, concat!(stringify!($ename), "({})"), other),
                    }
                }
            }

            abi!(@zeroable $ename $erepr);
        )*)?

        $($($(
            #[allow(missing_docs, reason = "the verbs' own names, explained in their manual")]
            pub const $ckey: $ctype = $cvalue;
        )*)*)?

        /// What this file declares.
        pub(crate) const TABLE: $crate::abi::Table = $crate::abi::Table {
            module: module_path!(),
            opaque: &[$($(stringify!($opaque),)*)?],
            structs: &[$($($crate::abi::Record {
                name: stringify!($sname),
                c: abi!(@c "struct" $sname $($sc)?),
                size: size_of::<$sname>(),
                align: align_of::<$sname>(),
                grows: abi!(@grows $($grows)?),
                fields: &[$($crate::abi::Field::new(
                    stringify!($sfield),
                    stringify!($sty),
                    core::mem::offset_of!($sname, $sfield),
                    size_of::<$sty>(),
                ),)*],
            },)*)?],
            unions: &[$($($crate::abi::Record {
                name: stringify!($uname),
                c: abi!(@c "union" $uname $($uc)?),
                size: size_of::<$uname>(),
                align: align_of::<$uname>(),
                grows: $crate::abi::Grows::No,
                fields: &[$($crate::abi::Field::new(
                    stringify!($ufield),
                    stringify!($uty),
                    core::mem::offset_of!($uname, $ufield),
                    size_of::<$uty>(),
                ),)*],
            },)*)?],
            enums: &[$($($crate::abi::Enum {
                name: stringify!($ename),
                size: size_of::<$ename>(),
                signed: $erepr::MIN != 0,
                constants: &[$($crate::abi::Constant {
                    name: stringify!($ekey),
                    value: $ekey.0 as i128,
                },)*],
            },)*)?],
            constants: &[$($($($crate::abi::Constant {
                name: stringify!($ckey),
                value: $ckey as i128,
            },)*)*)?],
        };
    };

    (@c $kind:literal $name:ident) => { concat!($kind, " ", stringify!($name)) };
    (@c $kind:literal $name:ident $c:literal) => { $c };

    (@grows) => { $crate::abi::Grows::No };
    (@grows grows) => { $crate::abi::Grows::Down };
    (@grows grows_up) => { $crate::abi::Grows::Up };

    (@zeroable $name:ident $($part:ty)*) => {
        const _: () = {
            const fn zeroable<T: bytemuck::Zeroable>() {}
            $(zeroable::<$part>();)*
        };
        // SAFETY: all of its parts are zeroable, as the lines above ask the compiler.
        unsafe impl bytemuck::Zeroable for $name {}
    };
}

pub(crate) use abi;
