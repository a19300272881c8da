// refork: n=40 m=44 x=n+1:in:index:4 y=m+1:in:index:4 score=(n+1)*(m+1):out
void alignment(int n, int m, const int *x, const int *y, int *score) {
    int i, j;
    for (i = 0; i <= n; i++) score[i * (m + 1)] = -2 * i;
    for (j = 0; j <= m; j++) score[j] = -2 * j;
    for (i = 1; i <= n; i++)
        for (j = 1; j <= m; j++) {
            int diagonal = score[(i - 1) * (m + 1) + j - 1] + (x[i] == y[j] ? 3 : -1);
            int up = score[(i - 1) * (m + 1) + j] - 2, left = score[i * (m + 1) + j - 1] - 2;
            int best = diagonal > up ? diagonal : up;
            score[i * (m + 1) + j] = best > left ? best : left;
        }
}
