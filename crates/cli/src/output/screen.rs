//! The whole terminal as a screen, for `top`: takes it over, draws on it, reads keys, and always restores it.

use std::io::{self, BufWriter, IsTerminal as _, Read as _, Stdout};
use std::os::fd::AsFd as _;
use std::panic;
use std::time::Duration;

use ratatui::backend::{Backend as _, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::{Print, force_color_output};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::layout::Rect;

use super::terminal_is_dumb;
use taskqueue_engine::StopSignals;

/// How many bytes of a frame are written at once, and how many bytes of keys are read at once.
const FRAME: usize = 64 * 1024;
const KEYS: usize = 8 * 1024;

/// Saves the mode in which the mouse wheel sends arrow keys, and sets it; restores it. The mouse still selects text.
const WHEEL_AS_ARROWS: &str = "\x1b[?1007s\x1b[?1007h";
const WHEEL_AS_BEFORE: &str = "\x1b[?1007r";

/// Returns why there is no terminal to draw on, if so.
pub(crate) fn missing_terminal() -> Option<&'static str> {
    if !io::stdin().is_terminal() {
        Some("standard input is not a terminal")
    } else if !io::stdout().is_terminal() {
        Some("standard output is not a terminal")
    } else if terminal_is_dumb() {
        Some("the terminal is dumb")
    } else {
        None
    }
}

/// What happened during a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScreenInput {
    Nothing,
    /// Bytes from keys.
    Bytes(Vec<u8>),
    /// The terminal was closed.
    End,
    /// A signal asked this process to end.
    Stop,
}

/// The terminal, taken over until this is dropped. ratatui's own terminal is not used, because it asks for the position of the
/// cursor and could read typed keys as the answer.
pub(crate) struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    shown: Buffer,
    size: (u16, u16),
}

impl Screen {
    pub(crate) fn open(use_color: bool) -> io::Result<Self> {
        force_color_output(use_color);
        let writer = BufWriter::with_capacity(FRAME, io::stdout());
        let mut screen = Self { backend: CrosstermBackend::new(writer), shown: Buffer::default(), size: size()? };
        // Otherwise the message of a panic would disappear with the screen.
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            earlier(info);
        }));
        screen.take()?;
        Ok(screen)
    }

    /// Takes the terminal over, for the first time or again.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide, Print(WHEEL_AS_ARROWS))?;
        self.clear()
    }

    /// Restores the terminal for a while.
    pub(crate) fn leave(&self) {
        give_back();
    }

    /// Redraws everything the next time.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.shown = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        self.backend.clear()
    }

    /// Draws the difference to the previous frame.
    pub(crate) fn draw(&mut self, render: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        let area = Rect::new(0, 0, self.size.0, self.size.1);
        if self.shown.area != area {
            self.clear()?;
        }
        let mut next = Buffer::empty(area);
        render(area, &mut next);
        self.backend.draw(self.shown.diff(&next).into_iter())?;
        self.backend.flush()?;
        self.shown = next;
        Ok(())
    }

    /// Returns columns and rows.
    pub(crate) const fn size(&self) -> (u16, u16) {
        self.size
    }

    /// Returns true if the size has changed since the last call.
    pub(crate) fn has_resized(&mut self) -> bool {
        let now = size().unwrap_or(self.size);
        std::mem::replace(&mut self.size, now) != now
    }

    /// Waits for keys, for at most `limit`.
    pub(crate) fn listen(&self, stop: &StopSignals, limit: Duration) -> ScreenInput {
        let mut stdin = io::stdin();
        match stop.wait_or_read(Some(stdin.as_fd()), limit) {
            (true, _) => ScreenInput::Stop,
            (false, false) => ScreenInput::Nothing,
            (false, true) => {
                let mut bytes = vec![0; KEYS];
                match stdin.read(&mut bytes) {
                    Ok(0) => ScreenInput::End,
                    Ok(length) => {
                        bytes.truncate(length);
                        ScreenInput::Bytes(bytes)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => ScreenInput::Nothing,
                    Err(_) => ScreenInput::End,
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal. Errors are ignored, because it may be closed.
fn give_back() {
    let _ = execute!(io::stdout(), Print(WHEEL_AS_BEFORE), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
