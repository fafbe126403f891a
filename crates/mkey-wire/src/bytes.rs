//! Taking headers off a slice, and fields out of a header, such that no length is left unchecked:
//! the slice's at run time, the header's when it is compiled.

use crate::error::{Error, Header, Reason};

/// The first `N` bytes, and what follows them.
pub(crate) fn split<const N: usize>(
    header: Header,
    bytes: &[u8],
) -> Result<(&[u8; N], &[u8]), Error> {
    bytes
        .split_first_chunk()
        .ok_or(Error { header, reason: Reason::Short { needed: N, have: bytes.len() } })
}

/// Takes the first `N` bytes off `buffer`, to be written.
pub(crate) fn take<'a, const N: usize>(
    header: Header,
    buffer: &mut &'a mut [u8],
) -> Result<&'a mut [u8; N], Error> {
    let have = buffer.len();
    let Some((head, rest)) = std::mem::take(buffer).split_first_chunk_mut() else {
        return Err(Error { header, reason: Reason::Short { needed: N, have } });
    };
    *buffer = rest;
    Ok(head)
}

/// Writes `bytes` to the start of `buffer`, which it moves behind them.
pub(crate) fn append(header: Header, buffer: &mut &mut [u8], bytes: &[u8]) -> Result<(), Error> {
    let have = buffer.len();
    let Some((head, rest)) = std::mem::take(buffer).split_at_mut_checked(bytes.len()) else {
        return Err(Error { header, reason: Reason::Short { needed: bytes.len(), have } });
    };
    head.copy_from_slice(bytes);
    *buffer = rest;
    Ok(())
}

/// The `L` bytes at offset `AT` of a header.
pub(crate) fn get<const AT: usize, const L: usize, const N: usize>(header: &[u8; N]) -> [u8; L] {
    const { assert!(AT + L <= N) };
    std::array::from_fn(|i| header[AT + i])
}

/// Writes `L` bytes at offset `AT` of a header.
pub(crate) fn put<const AT: usize, const L: usize, const N: usize>(
    header: &mut [u8; N],
    value: [u8; L],
) {
    const { assert!(AT + L <= N) };
    header[AT..AT + L].copy_from_slice(&value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_is_too_short_is_an_error_with_both_lengths() {
        let error = split::<4>(Header::Bth, &[1, 2, 3]).expect_err("three bytes");
        assert_eq!(
            error,
            Error { header: Header::Bth, reason: Reason::Short { needed: 4, have: 3 } }
        );
        let mut buffer = [0; 3];
        let error = take::<4>(Header::Reth, &mut &mut buffer[..]).expect_err("three bytes");
        assert_eq!(
            error,
            Error { header: Header::Reth, reason: Reason::Short { needed: 4, have: 3 } }
        );
    }

    #[test]
    fn what_was_taken_is_followed_by_the_rest() {
        let (head, rest) = split::<2>(Header::Bth, &[1, 2, 3]).expect("three bytes");
        assert_eq!((head, rest), (&[1, 2], &[3][..]));
        let mut buffer = [0; 3];
        let mut rest = &mut buffer[..];
        put::<0, _, _>(take::<2>(Header::Bth, &mut rest).expect("two of three"), [7, 8]);
        put::<0, _, _>(take::<1>(Header::Bth, &mut rest).expect("one of one"), [9]);
        assert!(rest.is_empty());
        assert_eq!(buffer, [7, 8, 9]);
        assert_eq!(get::<1, 2, 3>(&buffer), [8, 9]);
    }
}
