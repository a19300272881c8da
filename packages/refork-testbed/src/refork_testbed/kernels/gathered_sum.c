// refork: n=1000 m=300 x=m at=n:in:index:m
float gathered_sum(int n, const float *x, const int *at) {
    float s = 0;
    for (int i = 0; i < n; i++) s += x[at[i]];
    return s;
}
