//! Random numbers from the kernel.

use std::io;
use std::time::SystemTime;

/// Returns 32 hexadecimal digits (128 bits), which cannot be guessed and do not repeat.
///
/// # Errors
/// The kernel has no random numbers yet, early at boot.
pub fn token() -> io::Result<String> {
    Ok(tokens(1)?.concat())
}

/// Returns several tokens, with one call to the kernel.
///
/// # Errors
/// As for [`token`].
pub fn tokens(count: usize) -> io::Result<Vec<String>> {
    let mut numbers = vec![[0_u8; 16]; count];
    getrandom::fill(numbers.as_flattened_mut()).map_err(io::Error::other)?;
    Ok(numbers.into_iter().map(|bytes| format!("{:032x}", u128::from_be_bytes(bytes))).collect())
}

/// Returns a token that mostly sorts after earlier ones, so that an index on them grows at its end. The prefix `once:` marks its
/// purpose.
///
/// # Errors
/// As for [`token`].
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

/// Returns a random number to spread simultaneous events; 0 if there is no randomness, which merely does not spread them.
#[must_use]
pub fn spread() -> u16 {
    let mut bytes = [0_u8; 2];
    let _ = getrandom::fill(&mut bytes);
    u16::from_le_bytes(bytes)
}
