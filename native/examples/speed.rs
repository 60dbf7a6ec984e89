//! How fast dumps are read and summarised: `cargo run --release --example speed FOLDER [ROUNDS]`.
//!
//! Files are read once and then decoded from memory, on one core. CPU time, as the kernel counts it, so that others on
//! the machine do not count.

use std::{env, error::Error, fs};

use forkpoint_native::context::Context;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("speed FOLDER [ROUNDS]")?;
    let rounds: u32 = env::args().nth(2).map_or(Ok(20), |rounds| rounds.parse())?;
    let mut files: Vec<Vec<u8>> = Vec::new();
    for file in fs::read_dir(folder)? {
        files.push(fs::read(file?.path())?);
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    let mut context = Context::default();
    let (mut taken, mut decoding, mut all) = (0, 0.0, 0.0);
    for summarises in [false, true] {
        let start = cpu_seconds()?;
        for _ in 0..rounds {
            taken = 0;
            for (rank, data) in (0i64..).zip(&files) {
                let is_mine = context.decode(data).is_ok();
                taken += usize::from(is_mine && (!summarises || context.summarise(rank).is_ok()));
                if summarises {
                    context.new_tables();
                }
            }
        }
        let seconds = (cpu_seconds()? - start) / f64::from(rounds);
        *(if summarises { &mut all } else { &mut decoding }) = seconds;
    }
    println!("{taken} of {} files taken, {bytes} bytes", files.len());
    for (what, seconds) in [("decode", decoding), ("decode and summarise", all)] {
        let (speed, each) = (bytes as f64 / seconds / 1e6, 1e3 * seconds / files.len() as f64);
        println!("{what}: {speed:.0} MB/s, {each:.3} ms a file");
    }
    Ok(())
}

fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let spent = fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: f64 = spent.split(' ').next().ok_or("no schedstat")?.parse()?;
    Ok(nanoseconds / 1e9)
}
