//! BLAKE2b (RFC 7693) without a key and with a digest of eight bytes.

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];
const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const BLOCK: usize = 128;
/// Digest length 8, no key, fan-out and depth 1.
const PARAMETERS: u64 = 0x0101_0008;

/// The digest as a little-endian number: what forkpoint calls a token or a key.
pub fn digest(data: &[u8]) -> u64 {
    let mut state = IV;
    state[0] ^= PARAMETERS;
    let mut rest = data;
    let mut counted = 0u128;
    while rest.len() > BLOCK {
        let (block, after) = rest.split_at(BLOCK);
        counted += BLOCK as u128;
        compress(&mut state, block, counted, false);
        rest = after;
    }
    let mut last = [0u8; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    compress(&mut state, &last, counted + rest.len() as u128, true);
    state[0]
}

fn compress(state: &mut [u64; 8], block: &[u8], counted: u128, is_last: bool) {
    let mut m = [0u64; 16];
    for (word, raw) in m.iter_mut().zip(block.chunks_exact(8)) {
        *word = u64::from_le_bytes([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7]]);
    }
    let mut v = [0u64; 16];
    v[..8].copy_from_slice(state);
    v[8..].copy_from_slice(&IV);
    v[12] ^= counted as u64;
    v[13] ^= (counted >> 64) as u64;
    if is_last {
        v[14] = !v[14];
    }
    // Written out, so that it is known to the compiler which words each round takes.
    mix_all(&mut v, &m, &SIGMA[0]);
    mix_all(&mut v, &m, &SIGMA[1]);
    mix_all(&mut v, &m, &SIGMA[2]);
    mix_all(&mut v, &m, &SIGMA[3]);
    mix_all(&mut v, &m, &SIGMA[4]);
    mix_all(&mut v, &m, &SIGMA[5]);
    mix_all(&mut v, &m, &SIGMA[6]);
    mix_all(&mut v, &m, &SIGMA[7]);
    mix_all(&mut v, &m, &SIGMA[8]);
    mix_all(&mut v, &m, &SIGMA[9]);
    mix_all(&mut v, &m, &SIGMA[0]);
    mix_all(&mut v, &m, &SIGMA[1]);
    for (i, word) in state.iter_mut().enumerate() {
        *word ^= v[i] ^ v[i + 8];
    }
}

#[inline(always)]
fn mix_all(v: &mut [u64; 16], m: &[u64; 16], s: &[usize; 16]) {
    mix(v, [0, 4, 8, 12], m[s[0]], m[s[1]]);
    mix(v, [1, 5, 9, 13], m[s[2]], m[s[3]]);
    mix(v, [2, 6, 10, 14], m[s[4]], m[s[5]]);
    mix(v, [3, 7, 11, 15], m[s[6]], m[s[7]]);
    mix(v, [0, 5, 10, 15], m[s[8]], m[s[9]]);
    mix(v, [1, 6, 11, 12], m[s[10]], m[s[11]]);
    mix(v, [2, 7, 8, 13], m[s[12]], m[s[13]]);
    mix(v, [3, 4, 9, 14], m[s[14]], m[s[15]]);
}

#[inline(always)]
fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
    v[d] = (v[d] ^ v[a]).rotate_right(32);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(24);
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
    v[d] = (v[d] ^ v[a]).rotate_right(16);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(63);
}

#[cfg(test)]
mod tests {
    use super::digest;

    /// `int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")`
    #[test]
    fn digests_are_those_of_hashlib() {
        let counting: Vec<u8> = (0..=255).collect();
        assert_eq!(digest(b""), EMPTY);
        assert_eq!(digest(b"nccl"), NCCL);
        assert_eq!(digest(&counting[..127]), BYTES_127);
        assert_eq!(digest(&counting[..128]), BYTES_128);
        assert_eq!(digest(&counting[..129]), BYTES_129);
        assert_eq!(digest(&counting), BYTES_256);
    }

    const EMPTY: u64 = 0xb4b2_7974_57a0_a6e4;
    const NCCL: u64 = 0x177e_80ad_a0f6_3b71;
    const BYTES_127: u64 = 0x1ec4_01c3_5156_0068;
    const BYTES_128: u64 = 0x827e_61b6_f13d_d1c2;
    const BYTES_129: u64 = 0xa650_536d_7ae4_67f6;
    const BYTES_256: u64 = 0x3fad_55d6_feed_2c2b;
}
