//! The C interface. Pointers that come out belong to the context and are valid until its next call.
//!
//! 0 means that `out` and `out_len` are set; 1 means that the file is for the Python reader.

#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::context::Context;
use crate::{NotMine, Taken, FORMAT_VERSION};

/// A context, until something in it broke: then it takes nothing more.
pub struct Handle(Option<Context>);

#[no_mangle]
pub extern "C" fn fp_version() -> u32 {
    FORMAT_VERSION
}

#[no_mangle]
pub extern "C" fn fp_new() -> *mut Handle {
    Box::into_raw(Box::new(Handle(Some(Context::default()))))
}

/// # Safety
/// `handle` comes from `fp_new`, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn fp_free(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: fp_new made it with Box, and the caller gives it up.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// # Safety
/// `handle` comes from `fp_new`; `data` has `len` bytes; `out` and `out_len` can be written to.
#[no_mangle]
pub unsafe extern "C" fn fp_decode(
    handle: *mut Handle,
    data: *const u8,
    len: usize,
    out: *mut *const u8,
    out_len: *mut usize,
) -> i32 {
    if data.is_null() {
        return 1;
    }
    // SAFETY: the caller's promise.
    let data = unsafe { std::slice::from_raw_parts(data, len) };
    // SAFETY: the caller's promise.
    unsafe { answer(handle, out, out_len, |context| context.decode(data)) }
}

/// # Safety
/// `handle` comes from `fp_new`; `out` and `out_len` can be written to.
#[no_mangle]
pub unsafe extern "C" fn fp_summarise(handle: *mut Handle, rank: i64, out: *mut *const u8, out_len: *mut usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { answer(handle, out, out_len, |context| context.summarise(rank)) }
}

/// # Safety
/// `handle` comes from `fp_new`; `out` and `out_len` can be written to.
#[no_mangle]
pub unsafe extern "C" fn fp_tables(handle: *mut Handle, out: *mut *const u8, out_len: *mut usize) -> i32 {
    let take = |context: &mut Context| {
        context.new_tables();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { answer(handle, out, out_len, take) }
}

/// Calls, and hands out the context's answer.
///
/// # Safety
/// `handle` comes from `fp_new`; `out` and `out_len` can be written to.
unsafe fn answer(
    handle: *mut Handle,
    out: *mut *const u8,
    out_len: *mut usize,
    call: impl FnOnce(&mut Context) -> Taken<()>,
) -> i32 {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return 1 };
    let Some(context) = handle.0.as_mut() else { return 1 };
    match catch_unwind(AssertUnwindSafe(|| call(context))) {
        Ok(Ok(())) => {
            let answer = context.out();
            // SAFETY: the caller's promise.
            unsafe {
                *out = answer.as_ptr();
                *out_len = answer.len();
            }
            0
        }
        Ok(Err(NotMine)) => 1,
        Err(_) => {
            handle.0 = None;
            1
        }
    }
}
