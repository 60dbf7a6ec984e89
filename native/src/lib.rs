//! Flight recorder dumps -> packed rank traces.
//!
//! A port of forkpoint's Python reader (`forkpoint.traces.dump`) for the dumps that PyTorch writes today.
//! It takes only what it fully understands; every other file is [`NotMine`], and the Python reader takes it, so that
//! errors, salvage and budgets are that reader's own. For a file that it takes, the bytes are those of the Python
//! packer (`forkpoint.traces.summary`).

#![deny(unsafe_code)]

pub mod blake2b;
mod columns;
pub mod context;
mod entry;
pub mod ffi;
mod header;
mod interner;
mod messages;
mod mould;
pub mod names;
pub mod packing;
mod ranks;
mod reader;
mod record;
mod signature;
mod tables;
mod templates;
pub mod tokens;
mod track;

/// The Python reader has to take this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotMine;

pub type Taken<T> = Result<T, NotMine>;

/// Of tokens, tables and records. The Python side refuses a library with another one.
pub const FORMAT_VERSION: u32 = 2;
