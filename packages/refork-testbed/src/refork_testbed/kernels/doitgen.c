// refork: r=10 q=12 p=16 a=r*q*p:inout c=p*p s=p:out
void doitgen(int r, int q, int p, float *a, const float *c, float *s) {
    int i, j, k, l;
    for (i = 0; i < r; i++)
        for (j = 0; j < q; j++) {
            for (k = 0; k < p; k++) {
                s[k] = 0.0f;
                for (l = 0; l < p; l++) s[k] += a[(i * q + j) * p + l] * c[l * p + k];
            }
            for (k = 0; k < p; k++) a[(i * q + j) * p + k] = s[k];
        }
}
