//! The kernel's random numbers.

use std::io;
use std::time::SystemTime;

/// 32 hexadecimal digits, 128 bits: nobody guesses them, and no two are ever the same.
///
/// # Errors
/// The kernel has no random numbers, early at boot.
pub fn token() -> io::Result<String> {
    Ok(tokens(1)?.concat())
}

/// So many of them, with one question to the kernel.
///
/// # Errors
/// As of [`token`].
pub fn tokens(count: usize) -> io::Result<Vec<String>> {
    let mut numbers = vec![[0_u8; 16]; count];
    getrandom::fill(numbers.as_flattened_mut()).map_err(io::Error::other)?;
    Ok(numbers.into_iter().map(|bytes| format!("{:032x}", u128::from_be_bytes(bytes))).collect())
}

/// Like [`token`], but later ones mostly sort behind earlier ones, so that an index of them is written at its end. It begins with
/// `once:`, and says so what it is for.
///
/// # Errors
/// As of [`token`].
#[expect(
    clippy::disallowed_methods,
    reason = "an order that is mostly right is all that is wanted, and compared with nothing"
)]
pub fn ordered_token() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("once:{:013x}:{:016x}", since_1970.as_micros(), u64::from_be_bytes(bytes)))
}

/// A number that spreads what would otherwise happen at once. 0 where there is no randomness: then it merely is not
/// spread.
#[must_use]
pub fn spread() -> u16 {
    let mut bytes = [0_u8; 2];
    let _ = getrandom::fill(&mut bytes);
    u16::from_le_bytes(bytes)
}
