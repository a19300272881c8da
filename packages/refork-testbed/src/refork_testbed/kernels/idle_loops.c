// refork: n=60 a=n*n:inout
void idle_loops(int n, float *a) {
    int i, j, k = 0;
    for (i = 0; i < n; i++) ;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) ;
    for (i = 0; i < n; i++) { }
    for (k = 0; k < n; a[k * n] = k, k++) ;
    for (i = 0; i < n * n; i++) a[i] += 1.0f;
}
