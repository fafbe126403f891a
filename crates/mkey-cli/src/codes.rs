//! Codes with stable names, as reports have them.

/// Declares an enumeration of codes, once: its variants, their names, and the list of all.
macro_rules! codes {
    ($(#[$about_all:meta])+ $($variant:ident $name:literal $about:literal,)+) => {
        $(#[$about_all])+
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum Code {
            $(#[doc = $about] #[serde(rename = $name)] $variant,)+
        }

        impl Code {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for Code {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use codes;
