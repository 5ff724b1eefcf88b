//! What happens when many processes want the same thing at once, when one dies in the middle, and who loses then.

mod collide;
mod interop;
mod kill;
mod lose;
mod lost_commit;
mod server;
mod stage;
mod storm;
mod tools;
