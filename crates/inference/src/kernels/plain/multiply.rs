//! The innermost loops of products of matrices, compiled three times: for any processor, and for those
//! that multiply and add in one step, with vectors of 256 and of 512 bits.
//!
//! Rows are multiplied in tiles whose sums stay in registers: four rows at a time, and those that are left
//! one by one in wider tiles. What columns are left run along the right matrix, four of its lines at a
//! time. Either way an element is summed in the order of the inner dimension, so a row's result is the
//! same to the last bit whatever the batch, and on every processor that adds in the same step. On others
//! the last bit may differ: a step that is one rounds once.

/// Rows of a tile.
const ROWS: usize = 4;

/// A number that matrices are made of.
pub(super) trait Factor: Copy + Default {
    /// Fills `into`, which is zero, with `left [n, inner] · right [inner, columns]`.
    fn multiply(left: &[Self], right: &[Self], inner: usize, columns: usize, into: &mut [Self]);
}

/// The product for a processor that has these features.
#[cfg(target_arch = "x86_64")]
macro_rules! one_step {
    ($type:ident, $name:ident, $features:literal, $tile:expr, $line:expr) => {
        #[target_feature(enable = $features)]
        fn $name(left: &[$type], right: &[$type], sides: (usize, usize), into: &mut [$type]) {
            product::<$type, { $tile }, { $line }>(left, right, sides, into, $type::mul_add);
        }
    };
}

/// The vectors are said in how many numbers they hold.
macro_rules! factor {
    ($type:ident, $plain:literal, $wide:literal, $widest:literal) => {
        impl Factor for $type {
            fn multiply(
                left: &[Self],
                right: &[Self],
                inner: usize,
                columns: usize,
                into: &mut [Self],
            ) {
                if columns == 0 || inner == 0 {
                    return;
                }
                #[cfg(target_arch = "x86_64")]
                {
                    // Two vectors for each of four rows, or eight for one row, hold the sums; of the
                    // widest, four are enough to keep up with what comes from the caches.
                    one_step!($type, wide, "avx2,fma", $wide * 2, $wide * 8);
                    one_step!($type, widest, "avx512f,avx512vl,avx2,fma", $widest * 2, $widest * 4);
                    #[allow(unsafe_code, reason = "the only door to what this processor has")]
                    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                        if is_x86_feature_detected!("avx512f")
                            && is_x86_feature_detected!("avx512vl")
                        {
                            // SAFETY: it has what the function is compiled for.
                            return unsafe { widest(left, right, (inner, columns), into) };
                        }
                        // SAFETY: the same.
                        return unsafe { wide(left, right, (inner, columns), into) };
                    }
                }
                product::<$type, { $plain * 2 }, { $plain * 8 }>(
                    left,
                    right,
                    (inner, columns),
                    into,
                    |x, y, sum| x * y + sum,
                );
            }
        }
    };
}

factor!(f32, 4, 8, 16);
factor!(f64, 2, 4, 8);

/// `TILE` and `LINE` are the columns of a tile of several rows and of one; `step` multiplies the first
/// two and adds the third.
#[inline(always)]
#[allow(clippy::inline_always, reason = "compiled for the processor of whoever calls it")]
fn product<T: Copy + Default, const TILE: usize, const LINE: usize>(
    left: &[T],
    right: &[T],
    (inner, columns): (usize, usize),
    into: &mut [T],
    step: impl Fn(T, T, T) -> T + Copy,
) {
    let blocks = left.chunks(ROWS * inner).zip(into.chunks_mut(ROWS * columns));
    for (rows, sums) in blocks {
        let several = rows.len() == ROWS * inner;
        let tiled = if several { columns / TILE * TILE } else { 0 };
        for first in (0..tiled).step_by(TILE) {
            tile::<T, ROWS, TILE>(rows, right, (inner, columns), first, sums, step);
        }
        if tiled == columns {
            continue;
        }
        for (row, sums) in rows.chunks_exact(inner).zip(sums.chunks_exact_mut(columns)) {
            let lined = if several { tiled } else { columns / LINE * LINE };
            for first in (tiled..lined).step_by(LINE) {
                tile::<T, 1, LINE>(row, right, (inner, columns), first, sums, step);
            }
            if lined < columns {
                along(row, right, lined, sums, step);
            }
        }
    }
}

/// One tile of the result.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
fn tile<T: Copy + Default, const HEIGHT: usize, const WIDTH: usize>(
    rows: &[T],
    right: &[T],
    (inner, columns): (usize, usize),
    first: usize,
    into: &mut [T],
    step: impl Fn(T, T, T) -> T + Copy,
) {
    let mut sums = [[T::default(); WIDTH]; HEIGHT];
    let lanes: [&[T]; HEIGHT] = std::array::from_fn(|row| &rows[row * inner..][..inner]);
    for (place, line) in right.chunks_exact(columns).enumerate().take(inner) {
        let Some(line) = line[first..].first_chunk::<WIDTH>() else { return };
        for (sums, row) in sums.iter_mut().zip(lanes) {
            let factor = row[place];
            for (sum, &element) in sums.iter_mut().zip(line) {
                *sum = step(factor, element, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        into[row * columns + first..][..WIDTH].copy_from_slice(sums);
    }
}

/// One row, from a column on.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
fn along<T: Copy>(
    row: &[T],
    right: &[T],
    from: usize,
    sums: &mut [T],
    step: impl Fn(T, T, T) -> T + Copy,
) {
    let columns = sums.len();
    let sums = &mut sums[from..];
    let (factors, left_over) = row.as_chunks::<4>();
    let (lines, last) = right.split_at(factors.len() * 4 * columns);
    for (factors, lines) in factors.iter().zip(lines.chunks_exact(4 * columns)) {
        let line = |number: usize| &lines[number * columns + from..(number + 1) * columns];
        let lines = line(0).iter().zip(line(1)).zip(line(2)).zip(line(3));
        for (sum, (((&one, &two), &three), &four)) in sums.iter_mut().zip(lines) {
            let so_far = step(factors[1], two, step(factors[0], one, *sum));
            *sum = step(factors[3], four, step(factors[2], three, so_far));
        }
    }
    for (&factor, line) in left_over.iter().zip(last.chunks_exact(columns)) {
        for (sum, &element) in sums.iter_mut().zip(&line[from..]) {
            *sum = step(factor, element, *sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(u16::try_from(state >> 16).unwrap()) / 32_768.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// Shapes around the edges of tiles and of lines taken four at a time.
    #[test]
    fn products_are_right_and_a_row_is_the_same_in_any_company() {
        for (rows, inner, columns) in [
            (1, 1, 1),
            (1, 50, 256),
            (3, 7, 5),
            (4, 4, 16),
            (5, 9, 17),
            (9, 33, 40),
            (8, 3, 15),
            (7, 50, 67),
            (6, 20, 129),
        ] {
            let (left, right) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
            let mut all = vec![0.0_f32; rows * columns];
            f32::multiply(&left, &right, inner, columns, &mut all);
            for row in 0..rows {
                let own = &left[row * inner..][..inner];
                for column in 0..columns {
                    let exact: f64 = (0..inner)
                        .map(|i| f64::from(own[i]) * f64::from(right[i * columns + column]))
                        .sum();
                    let found = f64::from(all[row * columns + column]);
                    assert!(
                        (found - exact).abs() < 1e-4,
                        "{rows} {inner} {columns}: {found} {exact}"
                    );
                }
                let mut alone = vec![0.0_f32; columns];
                f32::multiply(own, &right, inner, columns, &mut alone);
                let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&alone), bits(&all[row * columns..][..columns]), "row {row}");
            }
        }
    }

    #[test]
    fn nothing_times_nothing_stays_as_it_is() {
        let mut none: [f32; 0] = [];
        f32::multiply(&[], &[], 0, 0, &mut none);
        let mut zeros = [0.0_f64; 2];
        f64::multiply(&[], &[], 0, 2, &mut zeros);
        assert!(zeros.iter().all(|&zero| zero == 0.0));
    }
}
