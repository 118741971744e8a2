"""The ADBench problems by hand in C; the conventions are those of ``hand_c``.

The structure is that of ADBench's own hand-written modules: a Gaussian mixture point by point, an
LSTM with stored activations, one camera block per observation, and hand tracking that poses and
skins all vertices together with their derivatives in the angles.
"""

from __future__ import annotations

__all__ = ["MODELS"]

MODELS = r"""
/* Gaussian mixture: alphas, means, icf, x; n, d, k. */
static double mixture_constant(long n, long d, long k) {
    double w = d + 1, c = -0.5 * log(2) * w * d, lg = 0.25 * d * (d - 1) * log(M_PI);
    for (long j = 1; j <= d; j++) lg += lgamma(0.5 * w + 0.5 * (1 - j));
    return -0.5 * n * d * log(2 * M_PI) - k * (c - lg);
}
static double mixture(const double *const *in, double *const *out, const long *n, int gradient) {
    const double *restrict alphas = in[0], *restrict means = in[1], *restrict icf = in[2];
    long N = n[0], d = n[1], K = n[2], t = d * (d + 1) / 2;
    double *restrict q = NEW(K * d), *restrict sums = NEW(K), *restrict b = NEW(K);
    double *restrict u = NEW(K * d), *restrict c = NEW(K * d), *restrict back = NEW(d);
    double value = 0, total = 0, top = -INFINITY, frobenius = 0;
    double *restrict ga = out[1], *restrict gm = out[2], *restrict gi = out[3];
    for (long k = 0; k < K; k++) {
        sums[k] = 0;
        for (long j = 0; j < d; j++) {
            q[k * d + j] = exp(icf[k * t + j]);
            sums[k] += icf[k * t + j];
            frobenius += q[k * d + j] * q[k * d + j];
        }
        for (long j = d; j < t; j++) frobenius += icf[k * t + j] * icf[k * t + j];
        if (alphas[k] > top) top = alphas[k];
    }
    if (gradient) {
        memset(ga, 0, K * sizeof(double));
        memset(gm, 0, K * d * sizeof(double));
        memset(gi, 0, K * t * sizeof(double));
    }
    for (long i = 0; i < N; i++) {
        const double *restrict x = in[3] + i * d;
        double best = -INFINITY;
        for (long k = 0; k < K; k++) {
            double *restrict uk = u + k * d, *restrict ck = c + k * d;
            for (long j = 0; j < d; j++) ck[j] = x[j] - means[k * d + j];
            for (long j = 0; j < d; j++) uk[j] = q[k * d + j] * ck[j];
            const double *restrict l = icf + k * t + d;
            for (long j = 0; j < d - 1; j++) {
                double f = ck[j];
                for (long r = 0; r < d - 1 - j; r++) uk[j + 1 + r] += l[r] * f;
                l += d - 1 - j;
            }
            double square = 0;
            for (long j = 0; j < d; j++) square += uk[j] * uk[j];
            b[k] = alphas[k] + sums[k] - 0.5 * square;
            if (b[k] > best) best = b[k];
        }
        double sum = 0;
        for (long k = 0; k < K; k++) { b[k] = exp(b[k] - best); sum += b[k]; }
        value += best + log(sum);
        if (!gradient) continue;
        for (long k = 0; k < K; k++) {
            double w = b[k] / sum;
            ga[k] += w;
            const double *restrict uk = u + k * d, *restrict ck = c + k * d;
            const double *restrict l = icf + k * t + d;
            double *restrict g = gi + k * t;
            for (long j = 0; j < d; j++) {
                g[j] += w * (1 - uk[j] * ck[j] * q[k * d + j]);
                back[j] = q[k * d + j] * uk[j];
            }
            g += d;
            for (long j = 0; j < d - 1; j++) {
                double f = -w * ck[j], s = 0;
                const double *restrict ur = uk + j + 1;
                for (long r = 0; r < d - 1 - j; r++) { g[r] += f * ur[r]; s += l[r] * ur[r]; }
                back[j] += s;
                g += d - 1 - j; l += d - 1 - j;
            }
            for (long j = 0; j < d; j++) gm[k * d + j] += w * back[j];
        }
    }
    for (long k = 0; k < K; k++) total += exp(alphas[k] - top);
    value += 0.5 * frobenius - N * (top + log(total)) + mixture_constant(N, d, K);
    if (gradient)
        for (long k = 0; k < K; k++) {
            ga[k] -= N * exp(alphas[k] - top) / total;
            for (long j = 0; j < d; j++) gi[k * t + j] += q[k * d + j] * q[k * d + j];
            for (long j = d; j < t; j++) gi[k * t + j] += icf[k * t + j];
        }
    free(q); free(sums); free(u); free(b); free(c); free(back);
    return value;
}

CASE(gmm_value) { out[0][0] = mixture(in, out, n, 0); }
CASE(gmm) { out[0][0] = mixture(in, out, n, 1); }

/* LSTM: weights, extra, state, sequence; layers, characters, bits. */
#define MAXB 64
#define EACH for (long j = 0; j < b; j++)
static double lstm_run(const double *const *in, double *const *out, const long *n, int gradient) {
    const double *restrict W = in[0], *restrict E = in[1], *restrict X = in[3];
    long L = n[0], T = n[1] - 1, b = n[2], unit = 4 * b;
    /* of each step and layer: forget, in, out, change, tanh(cell), cell, hidden */
    double *restrict tape = malloc((gradient ? T : 1) * L * 7 * b * sizeof(double));
    double *restrict predicted = malloc((gradient ? T : 1) * b * sizeof(double));
    double *restrict state = malloc(2 * L * b * sizeof(double));
    memcpy(state, in[2], 2 * L * b * sizeof(double));
    double total = 0;
    for (long s = 0; s < T; s++) {
        double h[MAXB];
        EACH h[j] = X[s * b + j] * E[j];
        for (long l = 0; l < L; l++) {
            const double *restrict w = W + 2 * l * unit, *restrict c = w + unit;
            double *restrict hidden = state + 2 * l * b, *restrict cell = hidden + b;
            double *restrict a = tape + ((gradient ? s : 0) * L + l) * 7 * b;
            EACH {
                double forget = 1 / (1 + exp(-(h[j] * w[j] + c[j])));
                double ingate = 1 / (1 + exp(-(hidden[j] * w[b + j] + c[b + j])));
                double outgate = 1 / (1 + exp(-(h[j] * w[2 * b + j] + c[2 * b + j])));
                double change = tanh(hidden[j] * w[3 * b + j] + c[3 * b + j]);
                double next = cell[j] * forget + ingate * change, t = tanh(next);
                a[j] = forget; a[b + j] = ingate; a[2 * b + j] = outgate; a[3 * b + j] = change;
                a[4 * b + j] = t; a[5 * b + j] = next; a[6 * b + j] = outgate * t;
                cell[j] = next;
                hidden[j] = outgate * t;
                h[j] = outgate * t;
            }
        }
        double *restrict y = predicted + (gradient ? s : 0) * b, sum = 2, gold = 0, dot = 0;
        const double *restrict target = X + (s + 1) * b;
        EACH y[j] = h[j] * E[b + j] + E[2 * b + j];
        EACH sum += exp(y[j]);
        EACH { gold += target[j]; dot += target[j] * y[j]; }
        total += dot - gold * log(sum);
    }
    double scale = -1.0 / (T * b);
    if (gradient) {
        double *restrict gw = out[1], *restrict ge = out[2], *restrict adjoint = state;
        memset(gw, 0, 2 * L * unit * sizeof(double));
        memset(ge, 0, 3 * b * sizeof(double));
        memset(adjoint, 0, 2 * L * b * sizeof(double));
        for (long s = T - 1; s >= 0; s--) {
            const double *restrict target = X + (s + 1) * b, *restrict y = predicted + s * b;
            double e[MAXB], dh[MAXB], sum = 2, gold = 0;
            EACH { e[j] = exp(y[j]); sum += e[j]; gold += target[j]; }
            const double *restrict last = tape + (s * L + L - 1) * 7 * b + 6 * b;
            EACH {
                double d = scale * (target[j] - gold * e[j] / sum);
                ge[b + j] += d * last[j];
                ge[2 * b + j] += d;
                dh[j] = d * E[b + j];
            }
            for (long l = L - 1; l >= 0; l--) {
                const double *restrict w = W + 2 * l * unit;
                double *restrict g = gw + 2 * l * unit, *restrict gc = g + unit;
                const double *restrict a = tape + (s * L + l) * 7 * b;
                const double *restrict old = s ? a - L * 7 * b : 0;
                const double *restrict cell = s ? old + 5 * b : in[2] + (2 * l + 1) * b;
                const double *restrict hidden = s ? old + 6 * b : in[2] + 2 * l * b;
                double *restrict ah = adjoint + 2 * l * b, *restrict ac = ah + b;
                double input[MAXB];
                if (l) memcpy(input, a - b, b * sizeof(double));
                else EACH input[j] = X[s * b + j] * E[j];
                EACH {
                    double forget = a[j], ingate = a[b + j], outgate = a[2 * b + j];
                    double change = a[3 * b + j], t = a[4 * b + j], d = dh[j] + ah[j];
                    double dc = ac[j] + d * outgate * (1 - t * t);
                    double zf = dc * cell[j] * forget * (1 - forget);
                    double zi = dc * change * ingate * (1 - ingate);
                    double zo = d * t * outgate * (1 - outgate);
                    double zc = dc * ingate * (1 - change * change);
                    gc[j] += zf; gc[b + j] += zi; gc[2 * b + j] += zo; gc[3 * b + j] += zc;
                    g[j] += zf * input[j]; g[b + j] += zi * hidden[j];
                    g[2 * b + j] += zo * input[j]; g[3 * b + j] += zc * hidden[j];
                    ac[j] = dc * forget;
                    ah[j] = zi * w[b + j] + zc * w[3 * b + j];
                    dh[j] = zf * w[j] + zo * w[2 * b + j];
                }
            }
            EACH ge[j] += dh[j] * X[s * b + j];
        }
    }
    free(tape); free(predicted); free(state);
    return total * scale;
}

CASE(lstm_value) { out[0][0] = lstm_run(in, out, n, 0); }
CASE(lstm) { out[0][0] = lstm_run(in, out, n, 1); }

/* Bundle adjustment: cameras, points, weights, features, indices of both; observations. */
static inline void observe(const double *restrict c, const double *restrict point, double weight,
                           const double *restrict feature, double *restrict miss,
                           double *restrict J, int derivative) {
    double d[3] = {point[0] - c[3], point[1] - c[4], point[2] - c[5]};
    double theta = sqrt(c[0] * c[0] + c[1] * c[1] + c[2] * c[2]), inverse = 1 / theta;
    double sine = sin(theta), cosine = cos(theta), rest = 1 - cosine;
    double w[3] = {c[0] * inverse, c[1] * inverse, c[2] * inverse};
    double x[3] = {w[1] * d[2] - w[2] * d[1], w[2] * d[0] - w[0] * d[2], w[0] * d[1] - w[1] * d[0]};
    double along = w[0] * d[0] + w[1] * d[1] + w[2] * d[2], p[3];
    for (int i = 0; i < 3; i++) p[i] = d[i] * cosine + x[i] * sine + w[i] * along * rest;
    double iz = 1 / p[2], u = p[0] * iz, v = p[1] * iz, r = u * u + v * v;
    double bent = 1 + c[9] * r + c[10] * r * r, f = c[6];
    miss[0] = weight * (u * f * bent + c[7] - feature[0]);
    miss[1] = weight * (v * f * bent + c[8] - feature[1]);
    if (!derivative) return;
    /* of the two results: in (u, v), then in the rotated point */
    double slope = 2 * (c[9] + 2 * c[10] * r), wf = weight * f;
    double uu = wf * (bent + u * u * slope), uv = wf * u * v * slope;
    double vv = wf * (bent + v * v * slope);
    double A[3] = {uu * iz, uv * iz, -(uu * u + uv * v) * iz};
    double B[3] = {uv * iz, vv * iz, -(uv * u + vv * v) * iz};
    for (int j = 0; j < 3; j++) {
        double dw[3];
        for (int i = 0; i < 3; i++) dw[i] = ((i == j) - w[i] * w[j]) * inverse;
        double y[3] = {dw[1] * d[2] - dw[2] * d[1], dw[2] * d[0] - dw[0] * d[2],
                       dw[0] * d[1] - dw[1] * d[0]};
        double turn = dw[0] * d[0] + dw[1] * d[1] + dw[2] * d[2], a = 0, b = 0;
        for (int i = 0; i < 3; i++) {
            double e = w[j] * (x[i] * cosine - d[i] * sine + w[i] * along * sine) + y[i] * sine
                     + rest * (dw[i] * along + w[i] * turn);
            a += A[i] * e;
            b += B[i] * e;
        }
        J[j] = a;
        J[15 + j] = b;
    }
    double xy = w[0] * w[1] * rest, xz = w[0] * w[2] * rest, yz = w[1] * w[2] * rest;
    double R[3][3] = {
        {cosine + w[0] * w[0] * rest, xy - w[2] * sine, xz + w[1] * sine},
        {xy + w[2] * sine, cosine + w[1] * w[1] * rest, yz - w[0] * sine},
        {xz - w[1] * sine, yz + w[0] * sine, cosine + w[2] * w[2] * rest}};
    for (int j = 0; j < 3; j++) {
        double a = A[0] * R[0][j] + A[1] * R[1][j] + A[2] * R[2][j];
        double b = B[0] * R[0][j] + B[1] * R[1][j] + B[2] * R[2][j];
        J[3 + j] = -a; J[18 + j] = -b;
        J[11 + j] = a; J[26 + j] = b;
    }
    J[6] = weight * u * bent; J[21] = weight * v * bent;
    J[7] = weight; J[22] = 0; J[8] = 0; J[23] = weight;
    J[9] = wf * u * r; J[24] = wf * v * r;
    J[10] = wf * u * r * r; J[25] = wf * v * r * r;
    J[14] = u * f * bent + c[7] - feature[0];
    J[29] = v * f * bent + c[8] - feature[1];
}

static void adjust(const double *const *in, double *const *out, const long *n, int derivative) {
    const long *camera = (const long *)in[4], *point = (const long *)in[5];
    for (long i = 0; i < n[0]; i++)
        observe(in[0] + 11 * camera[i], in[1] + 3 * point[i], in[2][i], in[3] + 2 * i,
                out[0] + 2 * i, derivative ? out[1] + 30 * i : 0, derivative);
}

CASE(ba_value) { adjust(in, out, n, 0); }
CASE(ba) { adjust(in, out, n, 1); }

/* Hand tracking: theta, relatives, inverses, vertices, weights, points, which; vertices, points. */
#define BONES 22
static const int PARENT[BONES] = {-1, 0, 0, 2, 3, 4, 0, 6, 7, 8, 0, 10, 11, 12,
                                  0, 14, 15, 16, 0, 18, 19, 20};
typedef double M[16];
static void times(const double *restrict a, const double *restrict b, double *restrict r) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            r[4 * i + j] = a[4 * i] * b[j] + a[4 * i + 1] * b[4 + j] + a[4 * i + 2] * b[8 + j]
                         + a[4 * i + 3] * b[12 + j];
}
/* Rz Rx, or its derivative (which = 1: in x, 2: in z) */
static void euler(double x, double z, int which, double *restrict r) {
    double cx = cos(x), sx = sin(x), cz = cos(z), sz = sin(z);
    memset(r, 0, sizeof(M));
    double keep = which ? 0 : 1, xc = which == 1 ? -sx : cx, xs = which == 1 ? cx : sx;
    double zc = which == 2 ? -sz : cz, zs = which == 2 ? cz : sz;
    r[0] = which == 1 ? 0 : zc; r[4] = which == 1 ? 0 : zs;
    r[1] = -xc * zs; r[2] = xs * zs; r[5] = xc * zc; r[6] = -xs * zc;
    r[9] = which == 2 ? 0 : xs; r[10] = which == 2 ? 0 : xc; r[15] = keep;
}
static void skin(long V, const double *restrict vertices, const double *restrict weight,
                 const double *restrict t, double *restrict p) {
    for (int i = 0; i < 3; i++) {
        double *restrict q = p + i * V;
        double a = t[4 * i], b = t[4 * i + 1], c = t[4 * i + 2], d = t[4 * i + 3];
        for (long v = 0; v < V; v++)
            q[v] += weight[v] * (a * vertices[v] + b * vertices[V + v] + c * vertices[2 * V + v]
                                 + d * vertices[3 * V + v]);
    }
}
static void track(const double *const *in, double *const *out, const long *n, int derivative) {
    const double *restrict theta = in[0], *restrict X = in[3], *restrict W = in[4];
    const long *which = (const long *)in[6];
    long V = n[0], P = n[1];
    M relative[BONES], absolute[BONES], transform[BONES], e, f, g;
    double *restrict p = calloc(3 * V, sizeof(double)), *restrict dp = NEW(3 * V);
    for (int b = 0; b < BONES; b++) {
        int joint = b < 2 ? 3 : (b - 2) % 4, first = 6 + 4 * ((b - 2) / 4);
        const double *base = in[1] + 16 * b;
        if (joint == 3) memcpy(relative[b], base, sizeof(M));
        else {
            euler(theta[first + (joint ? joint + 1 : 0)], joint ? 0 : theta[first + 1], 0, e);
            times(base, e, relative[b]);
        }
        if (PARENT[b] < 0) memcpy(absolute[b], relative[b], sizeof(M));
        else times(absolute[PARENT[b]], relative[b], absolute[b]);
        times(absolute[b], in[2] + 16 * b, transform[b]);
        skin(V, X, W + b * V, transform[b], p);
    }
    double x = theta[0], y = theta[1], z = theta[2], angle = sqrt(x * x + y * y + z * z);
    double s = sin(angle), c = cos(angle), a[3] = {x / angle, y / angle, z / angle};
    double R[9], D[3][9];
#define TURN(R, w, c, s, k) do { \
        R[0] = w[0] * w[0] * (k) + (c); R[4] = w[1] * w[1] * (k) + (c); \
        R[8] = w[2] * w[2] * (k) + (c); \
        R[1] = w[0] * w[1] * (k) - w[2] * (s); R[3] = w[0] * w[1] * (k) + w[2] * (s); \
        R[2] = w[0] * w[2] * (k) + w[1] * (s); R[6] = w[0] * w[2] * (k) - w[1] * (s); \
        R[5] = w[1] * w[2] * (k) - w[0] * (s); R[7] = w[1] * w[2] * (k) + w[0] * (s); } while (0)
    TURN(R, a, c, s, 1 - c);
    double *restrict miss = out[0], *restrict J = out[1];
    for (int i = 0; i < 3; i++)
        for (long k = 0; k < P; k++) {
            long v = which[k];
            miss[i * P + k] = in[5][i * P + k] - theta[3 + i]
                - (R[3 * i] * p[v] + R[3 * i + 1] * p[V + v] + R[3 * i + 2] * p[2 * V + v]);
        }
    if (derivative) {
        memset(J, 0, 3 * P * 26 * sizeof(double));
        for (int j = 0; j < 3; j++) {
            double da[3];
            for (int i = 0; i < 3; i++) da[i] = ((i == j) - a[i] * a[j]) / angle;
            TURN(D[j], a, -s * a[j], c * a[j], s * a[j]);
            double k = 1 - c;
            for (int r = 0; r < 3; r++)
                for (int q = 0; q < 3; q++) D[j][3 * r + q] += k * (da[r] * a[q] + a[r] * da[q]);
            D[j][1] -= da[2] * s; D[j][3] += da[2] * s; D[j][2] += da[1] * s;
            D[j][6] -= da[1] * s; D[j][5] -= da[0] * s; D[j][7] += da[0] * s;
            for (int i = 0; i < 3; i++)
                for (long k = 0; k < P; k++) {
                    long v = which[k];
                    J[(i * P + k) * 26 + j] = -(D[j][3 * i] * p[v] + D[j][3 * i + 1] * p[V + v]
                                                + D[j][3 * i + 2] * p[2 * V + v]);
                }
            for (long k = 0; k < P; k++) J[(j * P + k) * 26 + 3 + j] = -1;
        }
        for (int parameter = 6; parameter < 26; parameter++) {
            int finger = (parameter - 6) / 4, local = (parameter - 6) % 4;
            int start = 2 + 4 * finger + (local > 1 ? local - 1 : 0), first = 6 + 4 * finger;
            int joint = (start - 2) % 4;
            memset(dp, 0, 3 * V * sizeof(double));
            euler(theta[first + (joint ? joint + 1 : 0)], joint ? 0 : theta[first + 1],
                  local == 1 ? 2 : 1, e);
            times(in[1] + 16 * start, e, f);
            times(absolute[PARENT[start]], f, g);
            for (int b = start; b < 6 + 4 * finger; b++) {
                if (b > start) { times(g, relative[b], f); memcpy(g, f, sizeof(M)); }
                times(g, in[2] + 16 * b, f);
                skin(V, X, W + b * V, f, dp);
            }
            for (int i = 0; i < 3; i++)
                for (long k = 0; k < P; k++) {
                    long v = which[k];
                    J[(i * P + k) * 26 + parameter] = -(R[3 * i] * dp[v] + R[3 * i + 1] * dp[V + v]
                                                        + R[3 * i + 2] * dp[2 * V + v]);
                }
        }
    }
    free(p); free(dp);
}

CASE(hand_value) { track(in, out, n, 0); }
CASE(hand) { track(in, out, n, 1); }
"""
